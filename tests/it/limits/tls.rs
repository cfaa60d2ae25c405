//! `rediss://` with an authority of one's own.
//!
//! The trusted authorities come from the system, or from the file that `SSL_CERT_FILE` names. That is
//! for a whole process, so the client of the test is a child.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use streamfleet::testing::TestServer;
use streamfleet::{Client, ConnectError};
use tokio::net::TcpListener;

use super::{Job, Worker};
use crate::support::alone::together;
use crate::support::process::{ChildSpawn, role, say};

const PATIENCE: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs one task over TLS, or says why it cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_main() {
    let Some(url) = role() else { return };
    let began = Instant::now();
    match Client::connect(url).await {
        Ok(client) => {
            let worker = Worker::start(&client, |server| server);
            let handle = client.enqueue(Job::quick(14)).await.unwrap();
            let output = handle.result_timeout(PATIENCE).await.unwrap();
            worker.stop().await;
            client.close().await;
            say(format!("done {output}"));
        }
        Err(error) => {
            assert!(matches!(error, ConnectError::Backend(_)), "{error:?}");
            say(format!("refused {} {error}", began.elapsed().as_millis()));
        }
    }
}

/// An authority and a certificate of it for 127.0.0.1, as `<name>-ca.crt`, `<name>.crt`, `<name>.key`.
fn certify(directory: &Path, name: &str) {
    let extensions = format!("{name}.ext");
    std::fs::write(
        directory.join(&extensions),
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    let script = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
           -keyout {name}-ca.key -out {name}-ca.crt -subj /CN={name}-ca \
           -addext basicConstraints=critical,CA:TRUE && \
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
           -keyout {name}.key -out {name}.csr -subj /CN=localhost && \
         openssl x509 -req -in {name}.csr -CA {name}-ca.crt -CAkey {name}-ca.key -CAcreateserial \
           -days 2 -out {name}.crt -extfile {extensions}"
    );
    let made = Command::new("sh")
        .args(["-c", &script])
        .current_dir(directory)
        .output()
        .expect("sh runs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

async fn child(url: &str, authority: &Path) -> String {
    let child = ChildSpawn::of_test("limits::tls::child_main", url)
        .env("SSL_CERT_FILE", authority)
        .spawn();
    let exit = child.exit(PATIENCE).await;
    let lines = child.lines();
    assert!(exit.success(), "{lines:?} {:?}", child.errors());
    lines
        .into_iter()
        .find(|line| line.starts_with("done") || line.starts_with("refused"))
        .expect("it says how it went")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_run_over_tls_and_a_foreign_authority_is_refused_in_time() {
    let _together = together().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    certify(path, "ours");
    certify(path, "foreign");
    let tls_port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let file = |name: &str| path.join(name).display().to_string();
    let redis = TestServer::options()
        .arg("--tls-port", tls_port.to_string())
        .arg("--tls-cert-file", file("ours.crt"))
        .arg("--tls-key-file", file("ours.key"))
        .arg("--tls-ca-cert-file", file("ours-ca.crt"))
        .arg("--tls-auth-clients", "no")
        .start()
        .await
        .unwrap();
    let url = format!("rediss://127.0.0.1:{tls_port}");
    assert_eq!(child(&url, &path.join("ours-ca.crt")).await, "done 42");

    let plain = format!("rediss://:s3cret@127.0.0.1:{}", redis.port());
    for (url, authority, why) in [
        (&url, "foreign-ca.crt", "a foreign authority"),
        (&plain, "ours-ca.crt", "TLS to a plain port"),
    ] {
        let refused = child(url, &path.join(authority)).await;
        eprintln!("{why}: {refused}");
        let mut words = refused.split(' ');
        assert_eq!(words.next(), Some("refused"), "{why}");
        let took = Duration::from_millis(words.next().unwrap().parse().unwrap());
        assert!(
            took <= CONNECT_TIMEOUT + Duration::from_secs(1),
            "{why}: {refused}"
        );
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    // A plain client at the port for TLS.
    let began = Instant::now();
    let refused = Client::connect(format!("redis://127.0.0.1:{tls_port}"))
        .await
        .unwrap_err();
    assert!(matches!(refused, ConnectError::Backend(_)), "{refused:?}");
    assert!(began.elapsed() <= CONNECT_TIMEOUT + Duration::from_secs(1));
    redis.finish().await;
}
