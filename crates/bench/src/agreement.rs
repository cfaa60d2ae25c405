//! Tests: `raw` does what the library does, byte for byte and script for script.

use std::time::Duration;

use streamfleet::testing::AofMode;

use crate::Result;
use crate::fleet::{Bench, Fleet, Work};
use crate::host::Host;
use crate::layout::{self, ID_AT, ID_BYTES, QUEUE};
use crate::limit::{Strength, weakness};
use crate::raw;

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn the_library_stores_the_very_bytes_that_raw_stores() -> Result<()> {
    let mut host = Host::start(AofMode::Off).await?;
    let client = streamfleet::Client::connect(host.url()).await?;
    client.enqueue(Bench::new(7)).queue(QUEUE).await?;
    let awaited = host.first_value(&layout::key("s"))?;
    host.empty()?;
    client.enqueue(Bench::new(7)).queue(QUEUE).forget().await?;
    let forgotten = host.first_value(&layout::key("s"))?;

    let id = |stored: &[u8]| {
        stored[ID_AT..]
            .first_chunk::<ID_BYTES>()
            .copied()
            .unwrap_or_default()
    };
    let payload = layout::payload(Bench::expected(7) - 1);
    let name = client.id().as_str();
    assert_eq!(
        awaited,
        layout::envelope(&id(&awaited), Some(name), &payload)
    );
    assert_eq!(forgotten, layout::envelope(&id(&forgotten), None, &payload));
    assert_eq!(
        awaited.len(),
        raw::plain_bytes(),
        "the client ids are of one length"
    );
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn the_library_runs_the_very_scripts_that_raw_runs() -> Result<()> {
    let limit = Host::start(AofMode::Off).await?;
    let names = raw::prepare(&limit)?;
    let host = Host::start(AofMode::Off).await?;
    assert!(
        names.check_known(host.port()).is_err(),
        "nobody used this server yet"
    );
    let fleet = Fleet::start(&host.url(), 16, Work::Noop).await?;
    let output = fleet
        .client
        .enqueue(Bench::new(1))
        .queue(QUEUE)
        .await?
        .result()
        .await?;
    assert_eq!(output, Bench::expected(1));
    fleet.stop(1).await?;
    names.check_known(host.port())
}

#[test]
fn a_notice_has_the_form_of_the_librarys_golden_bytes() {
    let golden = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/notice_v1_succeeded.hex"
    ));
    let digits: String = golden.split_whitespace().collect();
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .filter_map(|byte| u8::from_str_radix(digits.get(2 * byte..2 * byte + 2)?, 16).ok())
        .collect();
    let ours = layout::notice(&bytes[ID_AT..ID_AT + ID_BYTES], 1);
    // Up to the header of the output, which has another length there.
    let header = ours.len() - 10;
    assert_eq!(ours[..header], bytes[..header]);
}

#[tokio::test]
async fn raw_ends_every_task_it_enqueued() -> Result<()> {
    for told in [true, false] {
        let mut host = Host::start(AofMode::Off).await?;
        let names = raw::prepare(&host)?;
        // It checks itself that nothing is left and each outcome arrived.
        let rate = raw::life(&mut host, &names, SHORT, told)?;
        assert!(rate.tasks > 0);
    }
    let host = Host::start(AofMode::Off).await?;
    let names = raw::prepare(&host)?;
    assert!(raw::single(&host, &names, SHORT)?.percentiles().tasks > 0);
    Ok(())
}

#[test]
fn a_weak_generator_is_told() {
    let strength = |share| Strength {
        plain_xadd: 100.0,
        redis_benchmark: Some(100.0),
        share: Some(share),
        redis_benchmark_single: None,
    };
    assert_eq!(weakness(0.9, &strength(0.95)), None);
    assert!(weakness(0.8, &strength(0.95)).is_some_and(|told| told.contains("0.80")));
    assert!(weakness(0.9, &strength(0.8)).is_some_and(|told| told.contains("redis-benchmark")));
}
