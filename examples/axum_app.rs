//! A web service: the HTTP handler enqueues a task and answers with its result; if that takes too
//! long, it answers "accepted" and the task goes on.
//!
//! `axum_app` listens on port 3000 until Ctrl-C: `curl -d 'to be or not' localhost:3000/words`.
//! `axum_app --once` takes a free port, sends itself one request, and ends. Both use `$REDIS_URL`,
//! else a Redis on this machine.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde::{Deserialize, Serialize};
use streamfleet::{Client, Context, Failure, ResultError, Server, Task, shutdown_signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Serialize, Deserialize, Task)]
#[task(name = "text.count-words", output = usize)]
struct CountWords {
    text: String,
}

async fn count_words(_cx: Context<()>, task: CountWords) -> Result<usize, Failure> {
    Ok(task.text.split_whitespace().count())
}

/// A client is cheap to clone, so it can be the state of the router.
async fn words(State(client): State<Client>, text: String) -> (StatusCode, String) {
    // Redis full or away: the caller may try again later, nothing was taken.
    let handle = match client.enqueue(CountWords { text }).queue("axum-app").await {
        Ok(handle) => handle,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    };
    match handle.result_timeout(Duration::from_secs(5)).await {
        Ok(words) => (StatusCode::OK, format!("{words}\n")),
        // It is in Redis and will run: answer with the id, for a later look.
        Err(ResultError::WaitTimeout(_)) => (StatusCode::ACCEPTED, format!("{}\n", handle.id())),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let once = std::env::args().any(|arg| arg == "--once");
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = Client::connect(url).await?;
    let stop = CancellationToken::new();

    // Here the worker is in the same process; it may as well be a fleet of its own.
    let server = Server::builder(&client, ())
        .queue("axum-app", 1)
        .on(count_words)
        .build()?;
    let server = tokio::spawn(server.run_until(stop.clone().cancelled_owned()));

    let listener = TcpListener::bind(("127.0.0.1", if once { 0 } else { 3000 })).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}");
    let app = Router::new()
        .route("/words", post(words))
        .with_state(client.clone());
    let http = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let http = tokio::spawn(http.into_future());

    let checked = if once {
        one_request(address).await
    } else {
        shutdown_signal().await;
        Ok(())
    };
    // First no more requests, then no more work, then no more connection.
    stop.cancel();
    http.await??;
    println!("{:?}", server.await??);
    client.close().await;
    checked
}

/// Asks the service as `curl` would.
async fn one_request(address: SocketAddr) -> Result<(), AnyError> {
    let text = "to be or not to be";
    let head =
        "POST /words HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: text/plain";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (status, body) = (answer.lines().next(), answer.lines().last());
    println!("\"{text}\" -> {status:?} {body:?}");
    if status == Some("HTTP/1.1 200 OK") && body == Some("6") {
        return Ok(());
    }
    Err(format!("an unexpected answer: {answer}").into())
}
