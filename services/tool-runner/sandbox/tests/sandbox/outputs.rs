//! The file to which commands append their outputs.

use std::{fs::File, os::unix::fs::FileExt as _};

use belay_sandbox::{NamespaceLauncher, OutputCaps, Settings, Spec, Status};

use crate::{
    harness::{Test, tests},
    support::{Fixture, launch, succeed, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    what_a_command_and_its_children_append_is_read,
    a_command_without_outputs_has_no_file,
    no_variable_takes_the_place_of_the_file,
    a_file_that_is_replaced_has_no_outputs,
];

fn content(file: &File) -> String {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The content of the file once the command has ended.
fn outputs(fixture: &Fixture, script: &str) -> String {
    let mut running = launch(Spec { outputs: true, ..fixture.script(script) });
    let file = running.outputs.take().unwrap();
    let (outcome, output) = running.collect(OutputCaps::default()).unwrap();
    assert_eq!(outcome.status, Status::Exited(0), "{}", output.stderr.text());
    content(&file)
}

fn what_a_command_and_its_children_append_is_read() {
    let fixture = Fixture::new();
    assert_eq!(outputs(&fixture, ":"), "");
    // Descriptors play no part: children that have none of them append too.
    let script = "echo a=1 >> $BELAY_OUTPUT; (exec 3>&- 4>&-; setsid sh -c 'echo b=2 | tee -a $BELAY_OUTPUT > /dev/null'); wait; cat $BELAY_OUTPUT";
    assert_eq!(outputs(&fixture, script), "a=1\nb=2\n");
}

fn a_command_without_outputs_has_no_file() {
    let fixture = Fixture::new();
    assert_eq!(succeed(fixture.script("echo ${BELAY_OUTPUT-unset}; ls -A /dev/shm")), "unset\n");
    assert!(launch(fixture.script(":")).outputs.is_none());
}

fn no_variable_takes_the_place_of_the_file() {
    let fixture = Fixture::new();
    let env = vec![("BELAY_OUTPUT".to_owned(), "/tmp/mine".into())];
    assert_eq!(succeed(Spec { env: env.clone(), ..fixture.script("echo ${BELAY_OUTPUT-unset}") }), "unset\n");
    let settings = Settings { env, ..Settings::default() };
    let launcher = NamespaceLauncher::new(settings).unwrap();
    let script = fixture.script("test -f $BELAY_OUTPUT && echo $BELAY_OUTPUT");
    assert_eq!(succeed_by(&launcher, Spec { outputs: true, ..script }), "/dev/shm/belay-output\n");
}

/// The runner reads the file that it was given before the command began, whatever is at its path.
fn a_file_that_is_replaced_has_no_outputs() {
    let fixture = Fixture::new();
    assert_eq!(outputs(&fixture, "rm $BELAY_OUTPUT; ln -s /etc/passwd $BELAY_OUTPUT"), "");
    assert_eq!(outputs(&fixture, "rm $BELAY_OUTPUT; mkfifo $BELAY_OUTPUT"), "");
    assert_eq!(
        outputs(&fixture, "echo a=1 >> $BELAY_OUTPUT; mv $BELAY_OUTPUT /dev/shm/x; echo b=2 > $BELAY_OUTPUT"),
        "a=1\n"
    );
}
