//! `#[derive(Task)]`.
