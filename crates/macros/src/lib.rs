//! `#[derive(Task)]`.
//!
//! Owns the syntax of `#[task(...)]` and what can be checked while compiling. It does not decide
//! anything that a hand-written `impl Task` could not: the expansion is that impl and nothing else.
//! Called by `streamfleet`, which re-exports the derive under its feature `macros`.

mod args;
mod check;
mod expand;

use proc_macro::TokenStream;

/// Implements `streamfleet::Task` for a struct or an enum.
///
/// ```ignore
/// #[derive(Serialize, Deserialize, Task)]
/// #[task(name = "image.resize", output = String, queue = "images", max_retries = 3, timeout = "30s")]
/// struct Resize {
///     url: String,
/// }
/// ```
///
/// | key | value | default |
/// |---|---|---|
/// | `name` | 1 to 128 of `A-Z a-z 0-9 . _ -`; the name on the wire | none: it must be given, and never follows the type's name |
/// | `output` | the type of a successful run | `()` |
/// | `error` | the type of a failed run, a `TaskError` | `streamfleet::Failure` |
/// | `codec` | `messagepack` or `json` | `messagepack` |
/// | `queue` | a queue name, same alphabet | the queue `default` |
/// | `max_retries` | 0 to 1000 | 25 |
/// | `backoff` | `curve`, `fixed("10s")` or `exponential("1s", "1h")`: first wait, longest wait; at most a day | `curve` |
/// | `timeout` | a duration up to 30 days, how long one run may take | 30 minutes |
/// | `delay` | a duration up to ten years, how long after the enqueue it starts | at once |
/// | `crate` | the path of `streamfleet`, when it is re-exported | `::streamfleet` |
///
/// Durations are text with one unit, `"250ms"`, `"30s"`, `"5m"`, `"1h"` or `"7d"`, checked while
/// compiling. Queue, retries, back-off, timeout and delay are what `Task::options` returns; an
/// enqueue can say otherwise.
///
/// A task owns its data, so lifetime parameters are refused. Type parameters are allowed, but all
/// instances of the type share one name: register a handler for one of them only.
#[proc_macro_derive(Task, attributes(task))]
pub fn derive_task(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
