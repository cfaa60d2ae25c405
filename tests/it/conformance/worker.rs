//! A worker process of its own.

use streamfleet::{Client, Server, shutdown_signal};

use super::app::open_account;
use crate::support::process;

pub(super) const ROLE: &str = "conformance-worker";

#[tokio::test]
async fn child_main() {
    if process::role().as_deref() != Some(ROLE) {
        return;
    }
    let env = |name| std::env::var(name).unwrap();
    let builder = Client::builder(env("URL")).prefix(env("PREFIX"));
    let client = builder.connect().await.unwrap();
    Server::builder(&client, ())
        .queue(env("QUEUE"), 1)
        .on(open_account)
        .build()
        .unwrap()
        .run_until(shutdown_signal())
        .await
        .unwrap();
    client.close().await;
}
