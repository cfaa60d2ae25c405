//! The test servers test themselves.

use std::time::{Duration, Instant};

use streamfleet::testing::{AofMode, Leak, TestCluster, TestError, TestServer};

#[tokio::test]
async fn a_server_answers_and_is_gone_after_the_test() {
    let server = TestServer::start().await.unwrap();
    let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
    let pong = server.command(&["PING"]).await.unwrap();
    assert_eq!(pong.text().as_deref(), Some("PONG"));
    server.finish().await;
    assert!(!directory.exists());
    assert!(!process_exists(pid));
}

#[tokio::test]
async fn what_the_append_only_file_has_survives_a_kill() {
    let server = TestServer::options().aof(AofMode::EverySec).start().await.unwrap();
    server.allow(Leak::ForeignKey, "the key that has to survive");
    server.command(&["SET", "kept", "a\r\nb"]).await.unwrap();
    let (port, before) = (server.port(), server.pid());
    server.kill();
    assert!(server.command(&["PING"]).await.is_err());
    server.restart().await.unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), before);
    let kept = server.command(&["GET", "kept"]).await.unwrap();
    assert_eq!(kept.bytes(), Some(&b"a\r\nb"[..]));
    server.finish().await;
}

#[tokio::test]
async fn a_paused_server_times_out_and_goes_on_after_resume() {
    let server = TestServer::start().await.unwrap();
    server.pause().unwrap();
    let limit = Duration::from_millis(200);
    let answer = server.command_within(limit, &["PING"]).await;
    assert!(matches!(answer, Err(TestError::Timeout(_))), "{answer:?}");
    server.resume().unwrap();
    assert!(server.command(&["PING"]).await.is_ok());
    server.finish().await;
}

#[tokio::test]
async fn a_cluster_has_three_queues_on_three_masters() {
    let start = Instant::now();
    let cluster = TestCluster::start().await.unwrap();
    println!("cluster after {:?}", start.elapsed());
    let queues = cluster.queues_on_three_nodes("q");
    cluster.finish().await;
    println!("{queues:?} {:?}", start.elapsed());
}

fn process_exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}
