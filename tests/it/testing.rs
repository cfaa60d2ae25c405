//! The test servers, the check for leaks, the proxy and the child processes test themselves.

mod children;
mod leaks;
mod proxy;
mod servers;
