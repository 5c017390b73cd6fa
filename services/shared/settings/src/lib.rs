//! What an operator may set: one file, the same for `belay run`, `belay serve` and the separate services.
//!
//! Settings arrive raw and leave checked: [`File::parse`] reports everything that is wrong by field and line, and [`Settings`] holds
//! values that can be used as they are, each with its [`Origin`]. [`load`] reads the file that counts; [`toolchains::find`] looks for the
//! toolchains on the caller's PATH in a described file system. A service takes the section that concerns it.

mod caches;
mod commands;
mod file;
mod load;
mod origin;
mod paths;
mod read;
mod resolve;
mod services;
mod show;
mod size;
pub mod toolchains;
mod view;

pub use belay_yaml::Violation;
pub use caches::{Cache, CacheUse, KNOWN_CACHES, KnownCache};
pub use commands::{Commands, Limits, Place, Reserve, Scratch, Shown, ViewBudget};
pub use file::{File, Log, LogFormat, LogLevel, Settings};
pub use load::{ConfigError, Loaded, load};
pub use origin::{Origin, Sourced};
pub use paths::{COMMAND_HOME, SYSTEM_FOLDERS, SYSTEM_PATH, is_system};
pub use resolve::{Resolved, UsedCache};
pub use services::{ExecutorLimits, GateLimits, RunnerLimits, Services};
pub use show::{Row, rows};
pub use view::{Lookup, View};
