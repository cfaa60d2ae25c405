//! `rediss://` with an authority of one's own.
//!
//! The trusted authorities come from the system, or from the file that `SSL_CERT_FILE` names. That is
//! for a whole process, so the client of the test is a child.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use streamfleet::testing::TestServer;
use streamfleet::{Client, ConnectError};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

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

/// An authority, whose certificate is in `<name>-ca.crt`, and a server that it vouches for.
fn certify(directory: &Path, name: &str) -> ServerConfig {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.join(format!("{name}-ca.crt")), certificate.pem()).unwrap();
    let issuer = Issuer::new(params, key);

    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap()
}

/// The TLS end in front of a server, so that the server itself need not be built with TLS. Its port;
/// it ends with the runtime.
async fn terminate(config: ServerConfig, server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that trusts another authority ends here, as does one without TLS.
                let Ok(mut client) = acceptor.accept(socket).await else {
                    return;
                };
                let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                // How it ends is for the two sides to judge.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
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
    let redis = TestServer::start().await.unwrap();
    let tls_port = terminate(certify(path, "ours"), redis.port()).await;
    certify(path, "foreign");
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
