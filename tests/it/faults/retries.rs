//! Retries lose nothing (defect B1 of the first streamfleet).

use streamfleet::Client;
use streamfleet::testing::TestServer;

use super::worker::{Act, Job, Setup, numbers, output_of};
use super::{LONG, together};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_tasks_that_fail_once_without_delay_all_succeed_ten_times_in_a_row() {
    let _together = together().await;
    for (round, concurrency) in [1, 4, 16].into_iter().cycle().take(10).enumerate() {
        let redis = TestServer::start().await.unwrap();
        let client = Client::connect(redis.url()).await.unwrap();
        let setup = Setup {
            concurrency,
            ..Setup::new(redis.url())
        };
        let worker = setup.here().await;
        let act = Act::FailFirst { busy: 0, retry: 0 };
        let jobs = (0..500).map(|n| Job::new(n, act.clone()));
        let handles = client.enqueue_all(jobs).await.unwrap();
        for (n, handle) in (0..).zip(handles) {
            let result = handle.unwrap().result_timeout(LONG).await;
            assert_eq!(result.unwrap(), output_of(n), "round {round}");
        }
        let twice: Vec<u64> = (0..500).flat_map(|n| [n, n]).collect();
        assert_eq!(numbers(&worker.events(), "start"), twice);
        let report = worker.stop().await;
        assert_eq!((report.retried, report.succeeded), (500, 500));
        client.close().await;
        redis.finish().await;
    }
}
