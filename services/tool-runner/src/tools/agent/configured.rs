//! An agent as the runner has it.

use std::{path::PathBuf, sync::Arc};

use belay_service_kit::Clock;
use belay_settings::ExternalAgent;

use crate::{ToolSpec, tools::run_terminal::RunTerminal};

/// An agent, and what runs it.
pub(super) struct ConfiguredAgent {
    pub(super) spec: ToolSpec,
    pub(super) agent: ExternalAgent,
    pub(super) terminal: RunTerminal,
    pub(super) clock: Arc<dyn Clock>,
    /// Where the files with the tasks of calls are written; `None` if the runner keeps no files.
    pub(super) prompts_in: Option<PathBuf>,
}

impl ConfiguredAgent {
    /// Why its configuration cannot be used; `None` where it can, or it has none.
    pub(super) fn missing_config(&self) -> Option<String> {
        let directory = self.agent.config_dir.as_ref().filter(|directory| !directory.is_dir())?;
        Some(format!(
            "its configuration `{}` is not a directory that is there (`agents.{}.config_dir` in the settings)",
            directory.display(),
            self.agent.name
        ))
    }
}
