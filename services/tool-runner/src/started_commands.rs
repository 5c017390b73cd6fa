//! Counts the commands that have started.

use belay_service_kit::metrics::{Counter, Metric};

/// Commands that have started in this process, by whether their sandbox was set up before they came.
#[derive(Debug)]
pub(crate) struct StartedCommands(Counter);

const WAITING: &str = "waiting";
const NEW: &str = "new";

impl Default for StartedCommands {
    fn default() -> Self {
        Self(Counter::by("sandbox", &[WAITING, NEW]))
    }
}

impl StartedCommands {
    pub(crate) fn count(&self, was_armed: bool) {
        self.0.add(if was_armed { WAITING } else { NEW });
    }

    pub(crate) fn read(&self) -> Metric {
        let help = "Commands that have started, by whether their sandbox was set up before they came";
        Metric::counter("belay.runner.commands", help, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use belay_service_kit::metrics::Values;

    use super::*;

    #[test]
    fn commands_are_counted_by_their_sandbox() {
        let commands = StartedCommands::default();
        commands.count(true);
        commands.count(false);
        commands.count(true);
        let Values::Counter(counts) = commands.read().values else { panic!("it is a counter") };
        assert_eq!(counts, [(vec![("sandbox", "new")], 1), (vec![("sandbox", "waiting")], 2)]);
    }
}
