//! What a fleet with nothing to do asks of Redis.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use streamfleet::Client;
use streamfleet::testing::TestServer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{LONG, Worker};
use crate::support::alone::{alone, best_of_three};
use crate::support::eventually;

const WATCHED: Duration = Duration::from_secs(12);
/// Commands a second for each server.
const LIMIT: f64 = 5.0;

/// Counts what clients send, by name; what scripts call is not sent by anybody. `EVALSHA` is one of
/// our scripts.
async fn commands_sent(redis: &TestServer, time: Duration) -> BTreeMap<String, usize> {
    let mut socket = TcpStream::connect(("127.0.0.1", redis.port()))
        .await
        .unwrap();
    socket.write_all(b"MONITOR\r\n").await.unwrap();
    let mut lines = BufReader::new(socket).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "+OK");
    let began = Instant::now();
    let mut sent = BTreeMap::new();
    loop {
        let left = time.saturating_sub(began.elapsed());
        let Ok(line) = tokio::time::timeout(left, lines.next_line()).await else {
            return sent;
        };
        let line = line.unwrap().unwrap();
        // +1700000000.123456 [0 127.0.0.1:4242] "XREADGROUP" "GROUP" …
        let (source, command) = line.split_once("] ").unwrap();
        if !source.ends_with(" lua") {
            let name = command.split('"').nth(1).unwrap().to_uppercase();
            *sent.entry(name).or_insert(0) += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_sends_at_most_five_commands_a_second() {
    idle_servers_send_at_most_five_commands_a_second_each(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_idle_servers_send_at_most_five_commands_a_second_each() {
    idle_servers_send_at_most_five_commands_a_second_each(3).await;
}

async fn idle_servers_send_at_most_five_commands_a_second_each(count: usize) {
    let _alone = alone().await;
    best_of_three(async || {
        let redis = TestServer::start().await.unwrap();
        let mut clients = Vec::new();
        let mut workers = Vec::new();
        for _ in 0..count {
            // One process has one client and one server.
            let client = Client::connect(redis.url()).await.unwrap();
            workers.push(Worker::start(&client, |server| server).ready(&redis).await);
            clients.push(client);
        }
        eventually("the first sweep is over", LONG, async || {
            super::number(&redis, &["HEXISTS", &super::key("cfg"), "sweep_at"]).await == 1
        })
        .await;
        let sent = commands_sent(&redis, WATCHED).await;
        let total: usize = sent.values().sum();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let rate = total as f64 / WATCHED.as_secs_f64() / count as f64;
        eprintln!("{count} idle: {rate:.2} commands a second each: {sent:?}");
        for worker in workers {
            worker.stop().await;
        }
        for client in clients {
            client.close().await;
        }
        redis.finish().await;
        if rate <= LIMIT {
            Ok(())
        } else {
            Err(format!("{rate:.2} commands a second: {sent:?}"))
        }
    })
    .await;
}
