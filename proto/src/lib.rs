//! The contract of Belay as Rust types, generated from the files in `belay`; also conversions of times, and the names of gRPC's codes.
//!
//! Each package is a module: [`v1`] for planners, people and other clients, [`runner::v1`] for tool runners, [`gate::v1`] for what services
//! ask an approval gate. `runner` uses `v1`, and `gate` uses both. Every message also has the canonical proto3 JSON mapping as its `serde`
//! form.

use belay_reasons as reasons;

/// The compiled contract, comments included, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belay_descriptor.bin"));

/// Package `belay.v1`: executions, and approvals as planners read them and people decide them.
#[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all)]
pub mod v1 {
    tonic::include_proto!("belay.v1");
    include!(concat!(env!("OUT_DIR"), "/belay.v1.serde.rs"));
}

/// The API that a tool runner implements.
pub mod runner {
    /// Package `belay.runner.v1`.
    #[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("belay.runner.v1");
        include!(concat!(env!("OUT_DIR"), "/belay.runner.v1.serde.rs"));
    }
}

/// The API of an approval gate for executors and tool runners only.
pub mod gate {
    /// Package `belay.gate.v1`.
    #[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("belay.gate.v1");
        include!(concat!(env!("OUT_DIR"), "/belay.gate.v1.serde.rs"));
    }
}

pub use gate::v1 as gate_v1;
pub use runner::v1 as runner_v1;

mod annotations;
pub mod check;
pub mod codec;
pub mod contract;
pub mod json;
pub mod kinds;
pub mod payload;
pub mod session;
pub mod stores;
pub mod texts;
pub mod watch;

pub use belay_reasons::facts;

/// The name of the tool call that an event of this execution is about; empty when it is about no operation.
pub fn call_name(execution: &str, event: &v1::ExecutionEvent) -> String {
    match event.operation {
        ..=0 => String::new(),
        operation => format!("{execution}/steps/{}/calls/{}.{operation}", event.step_id, event.attempt),
    }
}

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

    use prost::Message as _;

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

    fn files() -> Vec<prost_types::FileDescriptorProto> {
        let set = prost_types::FileDescriptorSet::decode(super::FILE_DESCRIPTOR_SET).unwrap();
        set.file.into_iter().filter(|file| file.name().starts_with("belay/")).collect()
    }

    // Without these protoc-gen-go refuses the files, and Java's and C#'s classes land in a package called `belay.v1`.
    #[test]
    fn every_file_has_package_options_for_go_java_and_c_sharp() {
        let packages = [
            ("belay.v1", "Belay.V1", "belay.dev/gen/go/belay/v1;belayv1"),
            ("belay.runner.v1", "Belay.Runner.V1", "belay.dev/gen/go/belay/runner/v1;runnerv1"),
            ("belay.gate.v1", "Belay.Gate.V1", "belay.dev/gen/go/belay/gate/v1;gatev1"),
        ];
        for file in files() {
            let (package, c_sharp, go) = packages.into_iter().find(|(package, ..)| *package == file.package()).unwrap();
            let options = file.options.as_ref().unwrap();
            let found = (options.csharp_namespace(), options.go_package(), options.java_package());
            assert_eq!(found, (c_sharp, go, format!("dev.{package}").as_str()), "{}", file.name());
            assert!(options.java_multiple_files(), "{}", file.name());
        }
    }

    // Clients of `belay.v1` need no other package, and a tool runner needs nothing of the gate's.
    #[test]
    fn packages_import_one_another_in_one_direction() {
        let below: [(&str, &[&str]); 3] = [
            ("belay/v1", &["belay/v1"]),
            ("belay/runner/v1", &["belay/runner/v1", "belay/v1"]),
            ("belay/gate/v1", &["belay/gate/v1", "belay/runner/v1", "belay/v1"]),
        ];
        for file in files() {
            let folder = file.name().rsplit_once('/').unwrap().0;
            let (_, allowed) = below.into_iter().find(|(package, _)| *package == folder).unwrap();
            for import in file.dependency.iter().filter(|import| import.starts_with("belay/")) {
                let folder = import.rsplit_once('/').unwrap().0;
                assert!(allowed.contains(&folder), "{} imports {import}", file.name());
            }
        }
    }

    // What a service's file declares cannot move to another file without breaking clients.
    #[test]
    fn no_file_imports_the_file_of_a_service() {
        for file in files() {
            let services: Vec<_> = file.dependency.iter().filter(|import| import.ends_with("_service.proto")).collect();
            assert!(services.is_empty(), "{} imports {services:?}", file.name());
            assert_eq!(!file.service.is_empty(), file.name().ends_with("_service.proto"), "{}", file.name());
        }
    }
}
