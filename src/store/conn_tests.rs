//! The connections against a real server.
