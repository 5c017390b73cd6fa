//! The sandbox layers that this machine supports, whether they withstand attacks, and so whether commands run.

use std::{fmt, path::PathBuf, sync::Arc};

use belay_proto::{
    runner_v1::{self, enforcement_report},
    v1::ErrorClass,
};
use belay_reasons as reasons;
use belay_sandbox::{Launcher, Layer, LayerState, NamespaceLauncher, Report, Settings, Tier, probe, self_test};

use crate::ToolFailure;

/// The minimum tier for commands: the sandbox sets up all of its layers or starts nothing.
const REQUIRED: Tier = Tier::Full;

/// The sandbox layers, as probed when the runner started.
#[derive(Clone)]
pub struct Enforcement {
    report: Report,
    unsafe_attacks: Vec<String>,
    launcher: Result<Arc<dyn Launcher>, String>,
    path: Vec<PathBuf>,
}

impl fmt::Debug for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enforcement")
            .field("report", &self.report)
            .field("unsafe_attacks", &self.unsafe_attacks)
            .field("refusal", &self.launcher.as_ref().err())
            .finish()
    }
}

impl Enforcement {
    /// Probes each layer on this machine, then attacks the sandbox from inside. Blocks for some tens of milliseconds.
    ///
    /// A missing layer is not an error here: the report names it, and commands are refused with it.
    pub fn probed(settings: Settings) -> Self {
        let path = settings.path.clone();
        Self { path, ..Self::probe_and_attack(settings) }
    }

    fn probe_and_attack(settings: Settings) -> Self {
        let report = match probe(&settings) {
            Ok(report) => report,
            Err(error) => return Self::unavailable(error.to_string()),
        };
        if let Some(refusal) = missing(&report) {
            return Self { report, unsafe_attacks: Vec::new(), launcher: Err(refusal), path: Settings::default().path };
        }
        let tried = NamespaceLauncher::new(settings)
            .map_err(|error| error.to_string())
            .and_then(|launcher| Ok((self_test(&launcher).map_err(|error| error.to_string())?, launcher)));
        match tried {
            // Attacks that could not run prove nothing.
            Err(why) => Self { report, unsafe_attacks: Vec::new(), launcher: Err(why), path: Settings::default().path },
            Ok((attacks, launcher)) => {
                let possible = attacks.into_iter().filter(|attack| attack.possible);
                let unsafe_attacks = possible.map(|attack| format!("{} ({})", attack.attack, attack.detail)).collect();
                Self::new(report, unsafe_attacks, Arc::new(launcher))
            }
        }
    }

    /// Built from a report on the layers, the attacks that succeeded, and the launcher to use if there is nothing wrong.
    pub fn new(report: Report, unsafe_attacks: Vec<String>, launcher: Arc<dyn Launcher>) -> Self {
        let refusal = missing(&report).or_else(|| {
            let broken = unsafe_attacks.join("; ");
            (!broken.is_empty())
                .then(|| format!("the sandbox is not secure on this machine: these attacks succeeded: {broken}"))
        });
        let launcher = refusal.map_or(Ok(launcher), Err);
        Self { report, unsafe_attacks, launcher, path: Settings::default().path }
    }

    /// No sandbox, for this reason: every command is refused.
    pub fn unavailable(why: impl Into<String>) -> Self {
        let report = Report { layers: Vec::new(), tier: Tier::None };
        Self { report, unsafe_attacks: Vec::new(), launcher: Err(why.into()), path: Settings::default().path }
    }

    /// The directories in which commands look for programs, in order.
    pub fn path(&self) -> &[PathBuf] {
        &self.path
    }

    /// The launcher of commands.
    ///
    /// # Errors
    /// SANDBOX_UNAVAILABLE, with the missing layers and how to fix each.
    pub fn launcher(&self) -> Result<Arc<dyn Launcher>, ToolFailure> {
        self.launcher.clone().map_err(|why| {
            let message = format!("Commands cannot run without a sandbox: {why}.");
            ToolFailure::new(ErrorClass::SandboxViolation, reasons::SANDBOX_UNAVAILABLE, message)
        })
    }

    /// The names of the active layers in the order of their setup, for the receipt of a command.
    pub fn active_layers(&self) -> Vec<String> {
        let active = self.report.layers.iter().filter(|layer| layer.state == LayerState::Active);
        active.map(|layer| layer.layer.name().to_owned()).collect()
    }

    /// The full report.
    pub fn to_proto(&self) -> runner_v1::EnforcementReport {
        let layers = self.report.layers.iter().map(|layer| {
            let (active, why, fix) = match &layer.state {
                LayerState::Active => (true, String::new(), String::new()),
                LayerState::Missing { why, fix } => (false, why.clone(), (*fix).to_owned()),
            };
            runner_v1::EnforcementLayer { name: layer.layer.name().into(), active, why, fix }
        });
        let is_active = |wanted: Layer| {
            let found = self.report.layers.iter().find(|layer| layer.layer == wanted);
            found.map(|layer| layer.state == LayerState::Active)
        };
        runner_v1::EnforcementReport {
            layers: layers.collect(),
            tier: tier(self.report.tier).into(),
            min_tier: tier(REQUIRED).into(),
            // The id-mapped layer is reported for root only.
            staging: is_active(Layer::Workspace) == Some(true) && is_active(Layer::IdMappedWorkspace) != Some(false),
            breaches: self.unsafe_attacks.clone(),
        }
    }
}

fn tier(tier: Tier) -> enforcement_report::Tier {
    match tier {
        Tier::None => enforcement_report::Tier::None,
        Tier::Landlock => enforcement_report::Tier::C,
        Tier::NoProc => enforcement_report::Tier::B,
        Tier::Full => enforcement_report::Tier::A,
    }
}

/// The missing layers, each with its fix; `None` if commands can run.
fn missing(report: &Report) -> Option<String> {
    let missing = report.layers.iter().filter_map(|layer| match &layer.state {
        LayerState::Active => None,
        LayerState::Missing { why, fix } => {
            Some(format!("the layer `{}` is missing ({why}); to fix it: {fix}", layer.layer))
        }
    });
    (report.tier < REQUIRED).then(|| missing.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use belay_sandbox::{LaunchError, LayerReport, Running, Spec};

    use super::*;

    struct Never;

    impl Launcher for Never {
        fn launch(&self, _spec: Spec) -> Result<Running, LaunchError> {
            Err(LaunchError::NotReady)
        }
    }

    fn report(tier: Tier, missing: &[Layer]) -> Report {
        let all = [Layer::UserNamespace, Layer::Proc, Layer::Workspace, Layer::ProcessLimit, Layer::Landlock];
        let state = |layer: Layer| match missing.contains(&layer) {
            true => LayerState::Missing { why: "Operation not permitted".into(), fix: layer.fix() },
            false => LayerState::Active,
        };
        Report { layers: all.iter().map(|layer| LayerReport { layer: *layer, state: state(*layer) }).collect(), tier }
    }

    // B-10, S2-NFR-011: below the required level commands are refused, by the name of the missing layer.
    #[test]
    fn a_missing_layer_refuses_commands_by_name() {
        let enforcement = Enforcement::new(report(Tier::NoProc, &[Layer::Proc]), vec![], Arc::new(Never));
        let refused = enforcement.launcher().err().unwrap();
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::SandboxViolation, "SANDBOX_UNAVAILABLE"));
        assert!(
            refused.message.contains("`fresh /proc`") && refused.message.contains(Layer::Proc.fix()),
            "{refused:?}"
        );
        let said = enforcement.to_proto();
        assert_eq!((said.tier(), said.min_tier()), (enforcement_report::Tier::B, enforcement_report::Tier::A));
        let proc = said.layers.iter().find(|layer| layer.name == "fresh /proc").unwrap();
        assert!(!proc.active && !proc.why.is_empty() && proc.fix == Layer::Proc.fix());
        assert!(said.staging && !enforcement.active_layers().contains(&"fresh /proc".to_owned()));
    }

    #[test]
    fn a_missing_optional_layer_refuses_nothing() {
        let enforcement = Enforcement::new(report(Tier::Full, &[Layer::ProcessLimit]), vec![], Arc::new(Never));
        assert!(enforcement.launcher().is_ok());
        assert_eq!(enforcement.active_layers(), ["user namespace", "fresh /proc", "workspace mount", "landlock"]);
    }

    // B-10.
    #[test]
    fn an_attack_that_succeeds_refuses_commands() {
        let broken = vec!["read a secret file (canary)".to_owned()];
        let enforcement = Enforcement::new(report(Tier::Full, &[]), broken.clone(), Arc::new(Never));
        assert!(enforcement.launcher().err().unwrap().message.contains("read a secret file"));
        assert_eq!(enforcement.to_proto().breaches, broken);
    }

    // This test binary does not start with `take_over_if_asked`, so nothing can be probed.
    #[test]
    fn a_sandbox_that_cannot_be_probed_refuses_commands() {
        let enforcement = Enforcement::probed(Settings::default());
        assert!(enforcement.launcher().err().unwrap().message.contains("take_over_if_asked"));
        assert!(!enforcement.to_proto().staging && enforcement.active_layers().is_empty());
    }
}
