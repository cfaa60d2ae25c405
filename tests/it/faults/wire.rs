//! Connections that break, in the middle of everything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use streamfleet::Client;
use streamfleet::testing::TestServer;

use super::worker::{Act, Job, Setup, numbers, output_of, seen};
use super::{LONG, alone, best_of_three, entries_added, ms, number, together, within};
use crate::support::wait::eventually;
use crate::support::{Mode, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_reconnects_during_a_run_cost_neither_its_failure_nor_a_crash() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await;
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Setup::new(redis.url_at(proxy.port())).here().await;
    let handle = client.enqueue(Job::new(1, Act::FailAtGate)).await.unwrap();
    seen("start", 1, || worker.events()).await;
    for _ in 0..5 {
        let (open, before) = (proxy.open(), proxy.connections());
        proxy.cut_all();
        eventually("all connections are made anew", LONG, async || {
            proxy.connections() >= before + open && proxy.open() >= open
        })
        .await;
    }
    worker.open_gate();
    assert_eq!(handle.result_timeout(LONG).await.unwrap(), output_of(1));
    let events = worker.events();
    let attempts: Vec<u32> = events
        .iter()
        .filter(|event| event.what == "start")
        .map(|event| event.attempt)
        .collect();
    assert_eq!(attempts, [1, 2]);
    assert_eq!(super::counter(&redis, "default", "retried").await, 1);
    let crashes = "streamfleet:{default}:crashes";
    assert_eq!(number(&redis, &["EXISTS", crashes]).await, 0);
    let report = worker.stop().await;
    assert_eq!((report.leases_lost, report.reclaimed), (0, 0), "{report:?}");
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_reply_was_cut_is_found_again_without_waiting_for_the_lease() {
    let _alone = alone().await;
    best_of_three(async || {
        let redis = TestServer::start().await.unwrap();
        let proxy = Proxy::start(redis.port()).await;
        let client = Client::connect(redis.url()).await.unwrap();
        let mut late = Ok(());
        // 50 payloads of 2 kB: in the first entry, early, and late in the rest of the batch.
        for after in [1_000, 5_000, 60_000] {
            let worker = Setup {
                concurrency: 64,
                ..Setup::new(redis.url_at(proxy.port()))
            };
            let worker = worker.here().await;
            let jobs = (0..50).map(|n| Job {
                filler: "x".repeat(2_000),
                ..Job::sleep(n, 0)
            });
            // Only the reads bring much now; what the start asks for is over.
            calm(&proxy).await;
            proxy.set(Mode::CutReplyAfter(after));
            let began = Instant::now();
            let handles = client.enqueue_all(jobs).await.unwrap();
            for (n, handle) in (0..).zip(handles) {
                let result = handle.unwrap().result_timeout(LONG).await;
                assert_eq!(result.unwrap(), output_of(n));
            }
            let took = began.elapsed();
            assert_eq!(proxy.mode(), Mode::Pass, "nothing was cut");
            let events = worker.events();
            assert_eq!(numbers(&events, "start"), (0..50).collect::<Vec<_>>());
            let report = worker.stop().await;
            assert!(report.found_again > 0, "{report:?}");
            assert_eq!((report.leases_lost, report.reclaimed), (0, 0));
            late = late.and(within("finding it again", took, Duration::from_secs(5)));
        }
        client.close().await;
        redis.finish().await;
        late
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_reply_was_lost_is_enqueued_once() {
    let _together = together().await;
    for mode in [
        Mode::LoseReplyTo("a-mark-in-the-payload"),
        Mode::SwallowReplies,
        Mode::BlackHole,
        Mode::Delay(ms(700)),
        Mode::Refuse,
    ] {
        let redis = TestServer::start().await.unwrap();
        let proxy = Proxy::start(redis.port()).await;
        let client = Client::builder(redis.url_at(proxy.port()))
            .command_timeout(ms(500))
            .connect()
            .await
            .unwrap();
        let worker = Setup::new(redis.url()).here().await;
        // The first one makes the queue known, so that the next is the batch alone.
        let first = client.enqueue(Job::sleep(999, 0)).await.unwrap();
        assert_eq!(first.result().await.unwrap(), output_of(999));
        proxy.set(mode);
        if mode == Mode::Refuse {
            proxy.cut_all();
        }
        let jobs = (0..30).map(|n| Job {
            filler: "a-mark-in-the-payload".to_owned(),
            ..Job::sleep(n, 0)
        });
        let enqueued = tokio::spawn({
            let client = client.clone();
            let jobs: Vec<Job> = jobs.collect();
            async move { client.enqueue_all(jobs).await.unwrap() }
        });
        if !matches!(mode, Mode::LoseReplyTo(_)) {
            // Long enough for several repetitions.
            tokio::time::sleep(ms(2_000)).await;
            proxy.set(Mode::Pass);
            proxy.cut_all();
        }
        let handles = tokio::time::timeout(LONG, enqueued).await.unwrap().unwrap();
        assert_eq!(proxy.mode(), Mode::Pass, "{mode:?}: nothing was lost");
        for (n, handle) in (0..).zip(handles) {
            let result = handle.unwrap().result_timeout(LONG).await;
            assert_eq!(result.unwrap(), output_of(n), "{mode:?}");
        }
        let mut once: Vec<u64> = (0..30).collect();
        once.push(999);
        assert_eq!(numbers(&worker.events(), "start"), once, "{mode:?}");
        assert_eq!(entries_added(&redis, "default").await, 31, "{mode:?}");
        worker.stop().await;
        client.close().await;
        redis.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reports_the_successes_that_it_still_had_to_write() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let proxy = Proxy::start(redis.port()).await;
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Setup::new(redis.url_at(proxy.port())).here().await;
    // The runs end when nothing is taken any more, and their successes are on the way for a while.
    let handles = client
        .enqueue_all((0..10).map(|n| Job::sleep(n, 3_000)))
        .await;
    eventually("all run", LONG, async || {
        numbers(&worker.events(), "start").len() == 10
    })
    .await;
    proxy.set(Mode::Delay(ms(200)));
    let report = worker.stop().await;
    assert_eq!((report.succeeded, report.interrupted), (10, 0));
    for (n, handle) in (0..).zip(handles.unwrap()) {
        let result = handle.unwrap().result_timeout(LONG).await;
        assert_eq!(result.unwrap(), output_of(n));
    }
    client.close().await;
    redis.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_each_kind_of_connection_all_the_time_loses_and_doubles_nothing() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::builder(redis.url())
        .waiter_silence(Duration::from_secs(2))
        .connect()
        .await
        .unwrap();
    let workers = [
        Setup::new(redis.url()).here().await,
        Setup::new(redis.url()).here().await,
    ];
    let until = Instant::now() + Duration::from_secs(6);
    let killing = async {
        let kinds = [
            "-server-",
            "-reader-",
            "-keeper-",
            "sub=1",
            "-client-",
            "-receiver-",
        ];
        let mut killed = [0; 6];
        let mut turn = 0;
        while Instant::now() < until {
            killed[turn] += kill_connections(&redis, kinds[turn]).await;
            turn = (turn + 1) % kinds.len();
            tokio::time::sleep(ms(100)).await;
        }
        killed
    };
    // Four at a time, so that something is under way in every script when it is cut.
    let next = AtomicU64::new(0);
    let loading = || async {
        while Instant::now() < until {
            let numbers = next.fetch_add(25, Ordering::SeqCst);
            let numbers = numbers..numbers + 25;
            let jobs = numbers.clone().map(|n| {
                let act = Act::FailFirst { busy: 5, retry: 0 };
                if n % 5 == 0 {
                    Job::new(n, act)
                } else {
                    Job::sleep(n, 5)
                }
            });
            let handles = client.enqueue_all(jobs).await.unwrap();
            for (n, handle) in numbers.zip(handles) {
                let result = handle.unwrap().result_timeout(LONG).await;
                assert_eq!(result.unwrap(), output_of(n));
            }
        }
    };
    let (killed, ..) = tokio::join!(killing, loading(), loading(), loading(), loading());
    let enqueued = next.into_inner();
    assert!(killed.iter().all(|kind| *kind > 0), "{killed:?}");
    let events: Vec<_> = workers.iter().flat_map(|worker| worker.events()).collect();
    let wanted: Vec<u64> = (0..enqueued)
        .flat_map(|n| vec![n; if n % 5 == 0 { 2 } else { 1 }])
        .collect();
    assert_eq!(numbers(&events, "start"), wanted);
    assert_eq!(
        entries_added(&redis, "default").await,
        i64::try_from(wanted.len()).unwrap()
    );
    for worker in workers {
        let report = worker.stop().await;
        assert_eq!(report.leases_lost, 0, "{report:?}");
    }
    client.close().await;
    redis.finish().await;
}

/// Waits until no reply came for a while.
async fn calm(proxy: &Proxy) {
    let mut last = (proxy.bytes_to_client(), Instant::now());
    eventually("nothing more is said", LONG, async || {
        let now = proxy.bytes_to_client();
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() > ms(300)
    })
    .await;
}

async fn kill_connections(redis: &TestServer, kind: &str) -> usize {
    let list = redis.command(&["CLIENT", "LIST"]).await.unwrap();
    let list = list.text().unwrap();
    let mut killed = 0;
    for line in list.lines() {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        let named = field("name=").is_some_and(|name| name.contains(kind));
        // Whoever listens to a channel cannot take a name any more.
        if named || line.split(' ').any(|word| word == kind) {
            let id = field("id=").unwrap();
            let reply = redis.command(&["CLIENT", "KILL", "ID", id]).await.unwrap();
            killed += usize::try_from(reply.int().unwrap()).unwrap();
        }
    }
    killed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_sent_again_and_nobody_notices() {
    let _together = together().await;
    let redis = TestServer::start().await.unwrap();
    let client = Client::connect(redis.url()).await.unwrap();
    let worker = Setup::new(redis.url()).here().await;
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let flushing = async {
        let mut flushes = 0;
        while stopped.try_recv().is_err() {
            redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
            flushes += 1;
            tokio::time::sleep(ms(2)).await;
        }
        flushes
    };
    let load = async {
        let jobs = (0..1_000).map(|n| {
            let act = Act::FailFirst { busy: 0, retry: 50 };
            if n % 5 == 0 {
                Job::new(n, act)
            } else {
                Job::sleep(n, 10)
            }
        });
        let handles = client.enqueue_all(jobs).await.unwrap();
        for (n, handle) in (0..).zip(handles) {
            let result = handle.unwrap().result_timeout(LONG).await;
            assert_eq!(result.unwrap(), output_of(n));
        }
        stop.send(()).unwrap();
    };
    let (flushes, ()) = tokio::join!(flushing, load);
    assert!(flushes > 10, "{flushes}");
    assert_eq!(numbers(&worker.events(), "start").len(), 1_200);
    let report = worker.stop().await;
    assert_eq!((report.leases_lost, report.reclaimed), (0, 0), "{report:?}");
    client.close().await;
    redis.finish().await;
}
