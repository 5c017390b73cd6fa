//! All settings.

use crate::{
    CommandTool, Commands, ExternalAgent, McpServer, Models, NamespaceBudgets, Network, OperatorCredential, Origin,
    Research, Retention, Secrets, Services, ValueWithOrigin, Webhook,
};

/// The log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Disables logging.
    Off,
    /// Failures.
    Error,
    /// Events that an operator should check.
    Warn,
    /// Events.
    Info,
    /// Details.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The values in the file.
    pub(crate) const WORDS: [(&'static str, Self); 6] = [
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// The value in the file, which is also a valid log filter.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, level)| *level == self).map_or("info", |(word, _)| *word)
    }
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text.
    Text,
    /// A JSON object on each line.
    Json,
}

impl LogFormat {
    /// The values in the file.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];

    /// The value in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// The section `log`, for every service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The log level. `BELAY_LOG` overrides it, and accepts filters.
    pub level: ValueWithOrigin<LogLevel>,
    /// The log format. `BELAY_LOG_FORMAT` overrides it.
    pub format: ValueWithOrigin<LogFormat>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: ValueWithOrigin::default_of(LogLevel::Info),
            format: ValueWithOrigin::default_of(LogFormat::Text),
        }
    }
}

impl Log {
    /// The level, if the file sets it.
    pub fn level_of_file(&self) -> Option<LogLevel> {
        (self.level.origin != Origin::Default).then_some(self.level.value)
    }

    /// The format, if the file sets it.
    pub fn format_of_file(&self) -> Option<LogFormat> {
        (self.format.origin != Origin::Default).then_some(self.format.value)
    }
}

/// All settings, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Logs.
    pub log: Log,
    /// Commands.
    pub commands: Commands,
    /// The limits of each service.
    pub services: Services,
    /// The rules by which ended executions are kept.
    pub retention: Retention,
    /// The budgets of the executions of a namespace.
    pub budgets: NamespaceBudgets,
    /// The tools that the operator declares.
    pub tools: Vec<ValueWithOrigin<CommandTool>>,
    /// The external agents, which plans and models call as tools.
    pub agents: Vec<ValueWithOrigin<ExternalAgent>>,
    /// The servers whose tools plans can call.
    pub mcp_servers: Vec<ValueWithOrigin<McpServer>>,
    /// The secrets that are hidden besides what the built-in rules recognize.
    pub secrets: Secrets,
    /// The receivers that are told what happens to executions.
    pub webhooks: Vec<Webhook>,
    /// The values that requests of commands carry, and that commands never have.
    pub credentials: Vec<ValueWithOrigin<OperatorCredential>>,
    /// The hosts that commands may reach, by profile.
    pub network: Network,
    /// The models that plans may name.
    pub models: Models,
    /// Where the tool `research` looks besides the workspace.
    pub research: Research,
    /// Whether nothing beyond this machine is reached: no model, no host of a network profile, no receiver of webhooks.
    pub air_gapped: ValueWithOrigin<bool>,
}

impl Settings {
    /// Whether only models on this machine may be asked.
    pub fn asks_local_models_only(&self) -> bool {
        self.models.local_only.value || self.air_gapped.value
    }
}
