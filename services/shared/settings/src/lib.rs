//! The settings of the operator: one file, the same for `belay run`, `belay serve` and the separate services.
//!
//! [`File::parse`] validates the text and reports every violation by field and line. [`Settings`] holds valid values, each with its
//! [`Origin`]. [`load`] finds and reads the file; [`toolchains::find`] finds the toolchains on the caller's PATH. Each service takes its
//! own section.

mod agents;
mod budgets;
mod caches;
mod commands;
mod credential_files;
mod credentials;
mod exposure;
mod file;
mod load;
mod mcp;
mod models;
mod network;
mod origin;
mod paths;
mod read;
mod read_agents;
mod read_budgets;
mod read_credentials;
mod read_env;
mod read_mcp;
mod read_models;
mod read_network;
mod read_research;
mod read_rules;
mod read_tools;
mod read_values;
mod read_webhooks;
mod research;
mod resolve;
mod retention;
mod row;
mod secrets;
mod services;
mod settings;
mod show;
mod show_credentials;
mod show_models;
mod show_network;
mod show_research;
mod size;
mod sources;
pub mod toolchains;
mod tools;
mod view;
mod webhooks;

pub use agents::ExternalAgent;
pub use belay_yaml::Violation;
pub use budgets::{BudgetWindow, NamespaceBudget, NamespaceBudgets};
pub use caches::{Cache, CacheUse, KNOWN_CACHES, KnownCache};
pub use commands::{Commands, Limits, Place, Reserve, Scratch, ViewBudget, VisiblePath};
pub use credentials::OperatorCredential;
pub use file::File;
pub use load::{ConfigError, LoadedSettings, load};
pub use mcp::McpServer;
pub use models::Models;
pub use network::{Network, NetworkLimits};
pub use origin::{Origin, ValueWithOrigin};
pub use paths::{COMMAND_HOME, SYSTEM_FOLDERS, SYSTEM_PATH, is_system};
pub use research::{DocumentRoot, Research, WebSearch};
pub use resolve::{ResolvedCommands, UsedCache};
pub use retention::Retention;
pub use row::Row;
pub use secrets::Secrets;
pub use services::{ExecutorLimits, GateLimits, RunnerLimits, Services};
pub use settings::{Log, LogFormat, LogLevel, Settings};
pub use show::rows;
pub use tools::{CommandTool, Piece, ToolOutput, ToolRecovery, Word, Words};
pub use view::{Lookup, View};
pub use webhooks::{Webhook, WebhookEvent};
