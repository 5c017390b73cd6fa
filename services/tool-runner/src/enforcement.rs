//! The sandbox layers that this machine supports, whether they withstand attacks, and so whether commands run.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_proto::{
    runner_v1::{self, enforcement_report},
    v1::ErrorClass,
};
use belay_reasons as reasons;
use belay_sandbox::{Launcher, Layer, LayerState, NamespaceLauncher, Report, Settings, Tier, probe, self_test};
use tokio::time::Instant;

use crate::{ToolFailure, started_commands::StartedCommands};

/// The minimum tier for commands: the sandbox sets up all of its layers or starts nothing.
const REQUIRED: Tier = Tier::Full;

/// The delay after the first lost test. It doubles with each further one, up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The sandbox of this runner's commands, as tested when the runner started, or later if that test was lost.
///
/// A test that is lost (its processes were killed, or memory ran out) says nothing about the machine. It is repeated when a command comes.
#[derive(Clone)]
pub struct Enforcement(Arc<SandboxState>);

struct SandboxState {
    path: Vec<PathBuf>,
    state: Mutex<State>,
    /// Held while a test runs, so that there is one at a time.
    retry: Arc<tokio::sync::Mutex<Retry>>,
    test: Box<Test>,
    started: StartedCommands,
}

/// Tests the sandbox. Blocks.
type Test = dyn Fn() -> Result<SandboxTest, LostTest> + Send + Sync;

#[derive(Clone)]
enum State {
    Tested(Arc<SandboxTest>),
    Lost(LostTest),
}

/// When the next test may begin.
struct Retry {
    delay: Duration,
    at: Instant,
}

impl Retry {
    fn after(delay: Duration) -> Self {
        Self { delay: delay.saturating_mul(2).min(MAX_DELAY), at: Instant::now() + delay }
    }
}

/// Why a test of the sandbox has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LostTest(pub String);

/// The result of a test of the sandbox.
pub struct SandboxTest {
    report: runner_v1::EnforcementReport,
    launcher: Result<Arc<dyn Launcher>, String>,
}

impl fmt::Debug for SandboxTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxTest")
            .field("report", &self.report)
            .field("refusal", &self.launcher.as_ref().err())
            .finish()
    }
}

impl fmt::Debug for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state() {
            State::Tested(test) => f.debug_tuple("Enforcement").field(&test).finish(),
            State::Lost(lost) => f.debug_tuple("Enforcement").field(&lost).finish(),
        }
    }
}

impl SandboxTest {
    /// Built from a report on the layers, the attacks that succeeded, and the launcher to use if there is nothing wrong.
    pub fn new(report: &Report, unsafe_attacks: Vec<String>, launcher: Arc<dyn Launcher>) -> Self {
        let refusal = missing(report).or_else(|| {
            let broken = unsafe_attacks.join("; ");
            (!broken.is_empty())
                .then(|| format!("the sandbox is not secure on this machine: these attacks succeeded: {broken}"))
        });
        Self { report: to_proto(report, unsafe_attacks), launcher: refusal.map_or(Ok(launcher), Err) }
    }

    /// No sandbox, for this reason.
    fn refused(report: &Report, why: impl Into<String>) -> Self {
        Self { report: to_proto(report, Vec::new()), launcher: Err(why.into()) }
    }

    /// The full report.
    pub(crate) fn report(&self) -> &runner_v1::EnforcementReport {
        &self.report
    }

    /// Why no command can run, if none can.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.launcher.as_ref().err().map(String::as_str)
    }
}

impl Enforcement {
    /// Probes each layer on this machine, then attacks the sandbox from inside. Blocks for some tens of milliseconds.
    ///
    /// A missing layer is not an error here: the report names it, and commands are refused with it.
    pub fn probed(settings: Settings) -> Self {
        let path = settings.path.clone();
        Self::tested_by(path, move || probe_and_attack(&settings))
    }

    /// Runs this test, and again later if it is lost. Commands look for programs in `path`.
    pub fn tested_by(
        path: Vec<PathBuf>,
        test: impl Fn() -> Result<SandboxTest, LostTest> + Send + Sync + 'static,
    ) -> Self {
        let state = match test() {
            Ok(test) => State::Tested(Arc::new(test)),
            Err(LostTest(why)) if is_planted(Defect::LostTestIsFinal) => {
                let untested = Report { layers: Vec::new(), tier: Tier::None };
                State::Tested(Arc::new(SandboxTest::refused(&untested, why)))
            }
            Err(lost) => State::Lost(lost),
        };
        let retry = Arc::new(tokio::sync::Mutex::new(Retry::after(FIRST_DELAY)));
        Self(Arc::new(SandboxState {
            path,
            state: Mutex::new(state),
            retry,
            test: Box::new(test),
            started: StartedCommands::default(),
        }))
    }

    /// The result of a test that was made elsewhere.
    fn known(test: SandboxTest) -> Self {
        let state = Mutex::new(State::Tested(Arc::new(test)));
        let retry = Arc::new(tokio::sync::Mutex::new(Retry::after(FIRST_DELAY)));
        // Never run: there is a result.
        let test = || Err(LostTest("there is no test".to_owned()));
        let (path, started) = (Settings::default().path, StartedCommands::default());
        Self(Arc::new(SandboxState { path, state, retry, test: Box::new(test), started }))
    }

    /// Built from a report on the layers, the attacks that succeeded, and the launcher to use if there is nothing wrong.
    pub fn new(report: &Report, unsafe_attacks: Vec<String>, launcher: Arc<dyn Launcher>) -> Self {
        Self::known(SandboxTest::new(report, unsafe_attacks, launcher))
    }

    /// As another process has reported it. There is no launcher: tools that start commands are refused.
    pub fn reported(report: runner_v1::EnforcementReport) -> Self {
        Self::known(SandboxTest { report, launcher: Err("this process has no launcher".to_owned()) })
    }

    /// No sandbox, for this reason: every command is refused.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::known(SandboxTest::refused(&Report { layers: Vec::new(), tier: Tier::None }, why))
    }

    /// The directories in which commands look for programs, in order.
    pub fn path(&self) -> &[PathBuf] {
        &self.0.path
    }

    /// The commands that have started.
    pub(crate) fn started_commands(&self) -> &StartedCommands {
        &self.0.started
    }

    fn state(&self) -> State {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The result of the test. If the tests so far were lost, repeats it, unless the last one was just now.
    ///
    /// # Errors
    /// SANDBOX_UNAVAILABLE, as a transient failure, while there is no result.
    pub async fn tested(&self) -> Result<Arc<SandboxTest>, ToolFailure> {
        if let State::Tested(test) = self.state() {
            return Ok(test);
        }
        let mut retry = Arc::clone(&self.0.retry).lock_owned().await;
        match self.state() {
            // The test that this call has waited for has a result.
            State::Tested(test) => return Ok(test),
            State::Lost(lost) if Instant::now() < retry.at => return Err(failure_of(&lost)),
            State::Lost(_) => {}
        }
        let shared = Arc::clone(&self.0);
        // It continues, and keeps others from testing, when the call that waits for it is cancelled.
        let testing = tokio::task::spawn_blocking(move || {
            let state = (shared.test)().map_or_else(State::Lost, |test| State::Tested(Arc::new(test)));
            *retry = Retry::after(retry.delay);
            *shared.state.lock().unwrap_or_else(PoisonError::into_inner) = state.clone();
            state
        });
        match testing.await {
            Ok(State::Tested(test)) => {
                tracing::info!("The sandbox has been tested");
                Ok(test)
            }
            Ok(State::Lost(lost)) => {
                tracing::warn!(error = %lost, "The test of the sandbox was lost; it is repeated with the next command");
                Err(failure_of(&lost))
            }
            Err(error) => Err(failure_of(&LostTest(error.to_string()))),
        }
    }

    /// The launcher of commands.
    ///
    /// # Errors
    /// SANDBOX_UNAVAILABLE, with the missing layers and how to fix each; as a transient failure while no test has a result.
    pub fn launcher(&self) -> Result<Arc<dyn Launcher>, ToolFailure> {
        match self.state() {
            State::Lost(lost) => Err(failure_of(&lost)),
            State::Tested(test) => test.launcher.clone().map_err(|why| {
                let message = format!("Commands cannot run without a sandbox: {why}.");
                ToolFailure::new(ErrorClass::SandboxViolation, reasons::SANDBOX_UNAVAILABLE, message)
            }),
        }
    }

    /// The names of the active layers in the order of their setup, for the receipt of a command.
    pub fn active_layers(&self) -> Vec<String> {
        let active = self.to_proto().layers.into_iter().filter(|layer| layer.active);
        active.map(|layer| layer.name).collect()
    }

    /// The full report; an empty one while no test has a result.
    pub fn to_proto(&self) -> runner_v1::EnforcementReport {
        match self.state() {
            State::Tested(test) => test.report.clone(),
            State::Lost(_) => to_proto(&Report { layers: Vec::new(), tier: Tier::None }, Vec::new()),
        }
    }
}

/// The failure of a command that came before a test of the sandbox had a result.
fn failure_of(lost: &LostTest) -> ToolFailure {
    let message = format!(
        "The test of the sandbox, without which no command runs, was lost: {lost}. It is repeated automatically, and says nothing about this \
         machine yet."
    );
    ToolFailure::new(ErrorClass::Transient, reasons::SANDBOX_UNAVAILABLE, message)
}

/// Tests the sandbox that these settings describe.
fn probe_and_attack(settings: &Settings) -> Result<SandboxTest, LostTest> {
    let lost = |is_lost: bool, why: String| if is_lost { Err(LostTest(why)) } else { Ok(why) };
    let untested = Report { layers: Vec::new(), tier: Tier::None };
    let report = match probe(settings) {
        Ok(report) => report,
        Err(error) => return Ok(SandboxTest::refused(&untested, lost(error.is_lost(), error.to_string())?)),
    };
    if let Some(refusal) = missing(&report) {
        return Ok(SandboxTest::refused(&report, refusal));
    }
    let launcher = match NamespaceLauncher::new(settings.clone()) {
        Ok(launcher) => launcher,
        Err(error) => return Ok(SandboxTest::refused(&report, lost(error.is_lost(), error.to_string())?)),
    };
    match self_test(&launcher) {
        Ok(attacks) => {
            let possible = attacks.into_iter().filter(|attack| attack.possible);
            let unsafe_attacks = possible.map(|attack| format!("{} ({})", attack.attack, attack.detail)).collect();
            Ok(SandboxTest::new(&report, unsafe_attacks, Arc::new(launcher)))
        }
        // Attacks that could not run prove nothing.
        Err(error) => Ok(SandboxTest::refused(&report, lost(error.is_lost(), error.to_string())?)),
    }
}

fn to_proto(report: &Report, breaches: Vec<String>) -> runner_v1::EnforcementReport {
    let layers = report.layers.iter().map(|layer| {
        let (active, why, fix) = match &layer.state {
            LayerState::Active => (true, String::new(), String::new()),
            LayerState::Missing { why, fix } => (false, why.clone(), (*fix).to_owned()),
        };
        runner_v1::EnforcementLayer { name: layer.layer.name().into(), active, why, fix }
    });
    let is_active = |wanted: Layer| {
        let found = report.layers.iter().find(|layer| layer.layer == wanted);
        found.map(|layer| layer.state == LayerState::Active)
    };
    runner_v1::EnforcementReport {
        layers: layers.collect(),
        tier: tier(report.tier).into(),
        min_tier: tier(REQUIRED).into(),
        // The id-mapped layer is reported for root only.
        staging: is_active(Layer::Workspace) == Some(true) && is_active(Layer::IdMappedWorkspace) != Some(false),
        breaches,
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use belay_sandbox::{LaunchError, LayerReport, RunningCommand, Spec};

    use super::*;

    struct UnreadyLauncher;

    impl Launcher for UnreadyLauncher {
        fn launch(&self, _spec: Spec) -> Result<RunningCommand, LaunchError> {
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
        let enforcement = Enforcement::new(&report(Tier::NoProc, &[Layer::Proc]), vec![], Arc::new(UnreadyLauncher));
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
        let enforcement =
            Enforcement::new(&report(Tier::Full, &[Layer::ProcessLimit]), vec![], Arc::new(UnreadyLauncher));
        assert!(enforcement.launcher().is_ok());
        assert_eq!(enforcement.active_layers(), ["user namespace", "fresh /proc", "workspace mount", "landlock"]);
    }

    // B-10.
    #[test]
    fn an_attack_that_succeeds_refuses_commands() {
        let broken = vec!["read a secret file (canary)".to_owned()];
        let enforcement = Enforcement::new(&report(Tier::Full, &[]), broken.clone(), Arc::new(UnreadyLauncher));
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

    /// A test of the sandbox that is lost as often as `losses` says, and counts how often it ran, and at most how many at a time.
    fn lossy(losses: u32) -> (Enforcement, Arc<[AtomicU32; 2]>) {
        let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let counting = Arc::clone(&counts);
        let enforcement = Enforcement::tested_by(Vec::new(), move || {
            let [runs, now] = &*counting;
            assert_eq!(now.fetch_add(1, Ordering::SeqCst), 0, "one test at a time");
            let run = runs.fetch_add(1, Ordering::SeqCst);
            now.fetch_sub(1, Ordering::SeqCst);
            if run < losses {
                return Err(LostTest("its launcher was killed".to_owned()));
            }
            Ok(SandboxTest::new(&report(Tier::Full, &[]), vec![], Arc::new(UnreadyLauncher)))
        });
        (enforcement, counts)
    }

    // A lost test is no verdict on the machine: it is repeated, later and by one command at a time, until it has a result, which stays.
    #[tokio::test(start_paused = true)]
    async fn a_lost_test_is_repeated_until_it_has_a_result() {
        let (enforcement, counts) = lossy(4);
        let runs = || counts[0].load(Ordering::SeqCst);
        let mut delay = FIRST_DELAY;
        for lost in 1..4 {
            assert_eq!(runs(), lost);
            for failure in [enforcement.tested().await.unwrap_err(), enforcement.launcher().err().unwrap()] {
                assert_eq!((failure.class, failure.reason.as_str()), (ErrorClass::Transient, "SANDBOX_UNAVAILABLE"));
                assert!(failure.message.contains("was lost: its launcher was killed"), "{failure:?}");
                assert!(failure.message.contains("repeated automatically"), "{failure:?}");
            }
            assert_eq!(runs(), lost, "not before the delay is over");
            tokio::time::advance(delay).await;
            delay *= 2;
            // All wait for the same test.
            let all = futures::future::join_all((0..8).map(|_| enforcement.tested())).await;
            assert!(all.iter().all(Result::is_err));
        }
        tokio::time::advance(delay).await;
        let all = futures::future::join_all((0..8).map(|_| enforcement.tested())).await;
        assert!(all.iter().all(Result::is_ok));
        assert!(enforcement.launcher().is_ok());
        enforcement.tested().await.unwrap();
        assert_eq!(runs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_leaves_while_it_waits_for_a_test_does_not_stop_it() {
        let (enforcement, counts) = lossy(1);
        tokio::time::advance(FIRST_DELAY).await;
        let mut waiting = Box::pin(enforcement.tested());
        // It has begun; on a busy machine it may have ended too.
        drop(futures::poll!(&mut waiting));
        drop(waiting);
        enforcement.tested().await.unwrap();
        assert_eq!(counts[0].load(Ordering::SeqCst), 2);
    }
}
