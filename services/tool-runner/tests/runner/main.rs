//! Tests of the runner over gRPC, on real directories, with scripted tools.

mod blobs;
mod calls;
mod flow;
mod flushes;
mod forgetting;
mod full_disk;
mod hooks;
mod hostile;
mod interference;
mod kills;
mod layers;
mod limits;
mod parallel;
mod policies;
mod secrets;
mod session;
mod support;
mod workspaces;
