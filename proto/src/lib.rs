//! The contract of Belay as Rust types, generated from `belay/v1/*.proto`; nothing else lives here.
//!
//! Every message also has the canonical proto3 JSON mapping as its `serde` form.

/// Package `belay.v1`.
#[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all)]
pub mod v1 {
    tonic::include_proto!("belay.v1");
    include!(concat!(env!("OUT_DIR"), "/belay.v1.serde.rs"));

    /// The compiled contract, comments included, for server reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belay_descriptor.bin"));
}
