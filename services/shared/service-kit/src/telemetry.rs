//! Logs: a sentence and a record, on stderr, since stdout is for data.

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. `BELAY_LOG` says what (`info`, `belay_executor=debug`, …); `default` when it is unset. A second call changes nothing.
pub fn init(default: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_env("BELAY_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(true);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Only a test that starts several services in one process gets here twice.
    drop(started);
}
