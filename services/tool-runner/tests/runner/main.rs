//! The runner as its callers see it: over gRPC, on real folders, with tools that do what they are told.

mod calls;
mod flow;
mod flushes;
mod full_disk;
mod hostile;
mod kills;
mod limits;
mod meddling;
mod parallel;
mod places;
mod policies;
mod secrets;
mod support;
mod workspaces;
