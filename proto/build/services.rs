//! Generates clients and servers, which differ in two messages: a server's watch sends events that are encoded already, and a server checks each
//! operation of a session for itself.

use prost_build::{Service, ServiceGenerator};

/// The method of which servers send [`WATCH_MESSAGE`].
const WATCH: (&str, &str) = ("ExecutorService", "WatchExecution");

/// The type that a server sends in place of a `WatchExecutionResponse`: the same bytes.
const WATCH_MESSAGE: &str = "crate::watch::WatchMessage";

/// Generates clients and servers of all services.
pub(crate) struct Services {
    client: Box<dyn ServiceGenerator>,
    server: Box<dyn ServiceGenerator>,
}

/// The method of which servers receive [`SESSION_MESSAGE`].
const SESSION: (&str, &str) = ("ToolRunnerService", "Session");

/// The type that a server receives in place of a `SessionRequest`: the same bytes.
const SESSION_MESSAGE: &str = "crate::session::ReceivedRequest";

impl Services {
    /// Generators of clients and servers that use the codec at the path `codec`.
    pub(crate) fn new(codec: &str) -> Self {
        let configured = || tonic_prost_build::configure().compile_well_known_types(true).codec_path(codec);
        Self {
            client: configured().build_server(false).service_generator(),
            server: configured().build_client(false).service_generator(),
        }
    }
}

impl ServiceGenerator for Services {
    fn generate(&mut self, service: Service, code: &mut String) {
        self.client.generate(service.clone(), code);
        let mut served = service;
        for method in &mut served.methods {
            if (served.proto_name.as_str(), method.proto_name.as_str()) == WATCH {
                method.output_type = WATCH_MESSAGE.to_owned();
            }
            if (served.proto_name.as_str(), method.proto_name.as_str()) == SESSION {
                method.input_type = SESSION_MESSAGE.to_owned();
            }
        }
        self.server.generate(served, code);
    }
}
