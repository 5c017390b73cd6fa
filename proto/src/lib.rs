//! The contract of Belay as Rust types, generated from `belay/v1/*.proto`; also conversions of times, and the names of gRPC's codes.
//!
//! Every message also has the canonical proto3 JSON mapping as its `serde` form.

use belay_reasons as reasons;

/// Package `belay.v1`.
#[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all)]
pub mod v1 {
    tonic::include_proto!("belay.v1");
    include!(concat!(env!("OUT_DIR"), "/belay.v1.serde.rs"));

    /// The compiled contract, comments included, for server reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belay_descriptor.bin"));
}

pub mod stores;
pub mod texts;

/// Converts microseconds since the Unix epoch to the contract's timestamp.
pub fn timestamp(micros: i64) -> pbjson_types::Timestamp {
    let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1000).expect("less than a second");
    pbjson_types::Timestamp { seconds: micros.div_euclid(1_000_000), nanos }
}

/// Converts the contract's timestamp to microseconds since the Unix epoch, saturating.
pub fn micros(timestamp: &pbjson_types::Timestamp) -> i64 {
    timestamp.seconds.saturating_mul(1_000_000).saturating_add(i64::from(timestamp.nanos / 1000))
}

/// Converts a duration to the contract's, saturating.
pub fn duration(duration: std::time::Duration) -> pbjson_types::Duration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    pbjson_types::Duration { seconds, nanos: i32::try_from(duration.subsec_nanos()).expect("less than a second") }
}

/// Converts the contract's duration; `None` when it is negative.
pub fn to_duration(duration: &pbjson_types::Duration) -> Option<std::time::Duration> {
    Some(std::time::Duration::new(u64::try_from(duration.seconds).ok()?, u32::try_from(duration.nanos).ok()?))
}

/// A code's name as gRPC writes it.
pub fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => reasons::CANCELLED,
        Code::Unknown => reasons::UNKNOWN,
        Code::InvalidArgument => reasons::INVALID_ARGUMENT,
        Code::DeadlineExceeded => reasons::DEADLINE_EXCEEDED,
        Code::NotFound => reasons::NOT_FOUND,
        Code::AlreadyExists => reasons::ALREADY_EXISTS,
        Code::PermissionDenied => reasons::PERMISSION_DENIED,
        Code::ResourceExhausted => reasons::RESOURCE_EXHAUSTED,
        Code::FailedPrecondition => reasons::FAILED_PRECONDITION,
        Code::Aborted => reasons::ABORTED,
        Code::OutOfRange => reasons::OUT_OF_RANGE,
        Code::Unimplemented => reasons::UNIMPLEMENTED,
        Code::Internal => reasons::INTERNAL,
        Code::Unavailable => reasons::UNAVAILABLE,
        Code::DataLoss => reasons::DATA_LOSS,
        Code::Unauthenticated => reasons::UNAUTHENTICATED,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn times_come_back_as_they_were() {
        for micros in [0, 1, -1, -1_000_001, 1_700_000_000_123_456, i64::from(i32::MIN)] {
            assert_eq!(super::micros(&super::timestamp(micros)), micros);
        }
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::new(90, 5_000_000)] {
            assert_eq!(super::to_duration(&super::duration(length)), Some(length));
        }
        assert_eq!(super::to_duration(&pbjson_types::Duration { seconds: -1, nanos: 0 }), None);
    }

    // Without these protoc-gen-go refuses the files, and Java's and C#'s classes land in a package called `belay.v1`.
    #[test]
    fn every_file_has_package_options_for_go_java_and_c_sharp() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/belay/v1");
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let text = std::fs::read_to_string(&file).unwrap();
            for option in [
                "option csharp_namespace = \"Belay.V1\";",
                "option go_package = \"belay.dev/gen/go/belay/v1;belayv1\";",
                "option java_multiple_files = true;",
                "option java_package = \"dev.belay.v1\";",
            ] {
                assert!(text.contains(option), "{} lacks `{option}`", file.display());
            }
        }
    }
}
