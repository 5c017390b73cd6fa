//! Tests of the fold with scripted runners: how an execution handles every event.

mod properties;
mod refusals;
mod requests;
mod scale;
mod stories;
mod support;
mod transitions;
mod worlds;
