//! Retries lose nothing (defect B1 of the first streamfleet).

use streamfleet::Client;
use streamfleet::testing::TestServer;

use super::worker::{Act, Job, Setup, numbers, output_of};
use super::{LONG, together};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_tasks_that_fail_once_without_delay_all_succeed_ten_times_in_a_row() {
    let _together = together().await;
    tokio::join!(ten_times(1), ten_times(4), ten_times(16));
}

async fn ten_times(concurrency: usize) {
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let setup = Setup {
        concurrency,
        ..Setup::new(redis.url())
    };
    let worker = setup.here().await;
    for round in 0..10 {
        let numbers = round * 500..(round + 1) * 500;
        let act = Act::FailFirst { busy: 0, retry: 0 };
        let jobs = numbers.clone().map(|n| Job::new(n, act.clone()));
        let handles = client.enqueue_all(jobs).await.unwrap();
        for (n, handle) in numbers.zip(handles) {
            let result = handle.unwrap().result_timeout(LONG).await;
            assert_eq!(result.unwrap(), output_of(n), "round {round}");
        }
    }
    let events = worker.events();
    let twice: Vec<u64> = (0..5_000).flat_map(|n| [n, n]).collect();
    assert_eq!(numbers(&events, "start"), twice);
    let report = worker.stop().await;
    assert_eq!((report.retried, report.succeeded), (5_000, 5_000));
    client.close().await;
    redis.finish().await;
}
