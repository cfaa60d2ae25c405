//! Behaviour of the erased handlers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;
use crate::Failure;

#[derive(Serialize, Deserialize, crate::Task)]
#[task(name = "double", output = u64)]
struct Double {
    n: u64,
}

#[derive(Debug)]
struct App {
    bonus: u64,
}

fn cx() -> Context<App> {
    Context::test(App { bonus: 1 })
}

fn payload(codec: Codec, n: u64) -> Bytes {
    encode_payload(codec, &Double { n }).unwrap()
}

fn erased<T: Task>(handler: impl Handler<App, T>) -> Box<dyn ErasedHandler<App>> {
    Box::new(AsyncHandler::new(handler))
}

async fn double(cx: Context<App>, task: Double) -> Result<u64, Failure> {
    Ok(task.n * 2 + cx.state().bonus)
}

#[tokio::test]
async fn an_output_comes_back_in_the_codec_of_the_payload() {
    let handler = erased(double);
    assert_eq!(handler.name(), "double");
    for codec in [Codec::MessagePack, Codec::Json] {
        let end = handler.run(cx(), payload(codec, 20), codec).await;
        let HandlerEnd::Succeeded {
            codec: of_output,
            output,
        } = end
        else {
            panic!("{end:?}");
        };
        assert_eq!(of_output, codec);
        assert_eq!(decode_payload::<u64>(codec, &output), Ok(41));
    }
}

#[tokio::test]
async fn closures_are_handlers() {
    let factor = 3;
    let handlers = [
        erased(async |_cx: Context<App>, task: Double| Ok(task.n * 3)),
        erased(|_cx, task: Double| async move { Ok(task.n * 3) }),
        erased(move |_cx, task: Double| async move { Ok(task.n * factor) }),
    ];
    for handler in handlers {
        let end = handler
            .run(cx(), payload(Codec::Json, 5), Codec::Json)
            .await;
        assert!(matches!(end, HandlerEnd::Succeeded { output, .. } if output == "15"));
    }
}

#[tokio::test]
async fn an_error_comes_back_as_data_as_text_and_with_its_consequence() {
    let handler = erased(async |_cx, _task: Double| {
        Err(Failure::retry_after(Duration::from_secs(7), "busy"))
    });
    let end = handler
        .run(cx(), payload(Codec::Json, 1), Codec::Json)
        .await;
    let HandlerEnd::Failed {
        codec,
        error,
        text,
        retry,
    } = end
    else {
        panic!("{end:?}");
    };
    assert_eq!(text, "busy");
    assert_eq!(retry, Retry::After(Duration::from_secs(7)));
    let error: Failure = decode_payload(codec, &error).unwrap();
    assert_eq!(error.message(), "busy");
}

#[tokio::test]
async fn a_foreign_payload_is_undecodable_and_the_handler_is_not_called() {
    let handler = erased(|_cx, _task: Double| async { unreachable!("called") });
    let foreign = Bytes::from_static(b"{\"m\":1}");
    let end = handler.run(cx(), foreign, Codec::Json).await;
    assert!(
        matches!(&end, HandlerEnd::Undecodable(text) if text.contains("`n`")),
        "{end:?}"
    );
}

/// An output and an error that serialize to an error.
#[derive(Debug, Deserialize)]
struct Stubborn;

impl Serialize for Stubborn {
    fn serialize<Z: serde::Serializer>(&self, _: Z) -> Result<Z::Ok, Z::Error> {
        Err(serde::ser::Error::custom("no"))
    }
}

impl fmt::Display for Stubborn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stubborn")
    }
}

impl TaskError for Stubborn {
    fn retry(&self) -> Retry {
        Retry::Never
    }
}

#[derive(Serialize, Deserialize, crate::Task)]
#[task(name = "stubborn", output = Stubborn, error = Stubborn)]
struct Try {
    succeed: bool,
}

#[tokio::test]
async fn what_cannot_be_encoded_is_said_and_a_failure_keeps_its_consequence() {
    let handler = erased(async |_cx, task: Try| match task.succeed {
        true => Ok(Stubborn),
        false => Err(Stubborn),
    });
    let run = async |succeed| {
        let payload = encode_payload(Codec::Json, &Try { succeed }).unwrap();
        handler.run(cx(), payload, Codec::Json).await
    };
    assert!(matches!(run(true).await, HandlerEnd::OutputUnencodable(text) if text == "no"));
    let end = run(false).await;
    let HandlerEnd::Failed {
        error, text, retry, ..
    } = end
    else {
        panic!("{end:?}");
    };
    assert!(error.is_empty());
    assert_eq!(text, "stubborn (as data it could not be encoded: no)");
    assert_eq!(retry, Retry::Never);
}

#[tokio::test]
async fn a_blocking_handler_runs_on_another_thread_and_its_panic_arrives() {
    let here = std::thread::current().id();
    let handler: Box<dyn ErasedHandler<App>> = Box::new(BlockingHandler::new(
        move |_cx: Context<App>, task: Double| {
            assert_ne!(task.n, 0, "zero");
            assert_ne!(std::thread::current().id(), here);
            Ok(task.n * 2)
        },
    ));
    assert!(handler.outlives_its_future());
    let end = handler
        .run(cx(), payload(Codec::Json, 4), Codec::Json)
        .await;
    assert!(matches!(end, HandlerEnd::Succeeded { output, .. } if output == "8"));

    let run = handler.run(cx(), payload(Codec::Json, 0), Codec::Json);
    let panic = tokio::spawn(run).await.unwrap_err().into_panic();
    assert!(
        panic
            .downcast_ref::<String>()
            .is_some_and(|text| text.contains("zero"))
    );
}
