//! Commands that ask or answer while they run, and their time limits meanwhile.

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    thread,
    time::Duration,
};

use belay_sandbox::{Dialogue, NamespaceLauncher, OutputCaps, RunningCommand, Settings, Spec, Status};

use crate::{
    harness::{Test, tests},
    support::{Fixture, launch, nap, succeed, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    a_command_asks_and_reads_the_answer,
    its_children_ask_too,
    the_pipes_can_be_opened_by_name,
    a_command_that_may_not_ask_has_no_pipes,
    no_variable_takes_the_place_of_the_pipes,
    the_pipes_end_with_the_command,
    a_command_reads_the_end_of_its_answers,
    answers_that_are_not_read_keep_no_command_from_being_killed,
    a_command_that_floods_its_questions_ends_at_its_time_limit,
    the_time_limit_stands_still,
    the_rest_of_the_time_limit_goes_on,
    a_timer_of_nothing_changes_nothing,
    a_server_speaks_over_its_standard_streams,
    a_server_has_no_other_descriptors,
];

/// How long a command may run whose time limit stands still.
const LIMIT: Duration = Duration::from_millis(700);

fn asking(fixture: &Fixture, script: &str) -> RunningCommand {
    launch(Spec { dialogue: Some(Dialogue::Questions), ..fixture.script(script) })
}

/// The next question of a command.
fn question(running: &mut RunningCommand) -> String {
    let mut line = String::new();
    let mut questions = BufReader::with_capacity(1, running.from_command.take().unwrap());
    questions.read_line(&mut line).unwrap();
    running.from_command = Some(questions.into_inner());
    line
}

fn answer(running: &mut RunningCommand, line: &str) {
    running.to_command.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
}

fn end(mut running: RunningCommand) -> (Status, String) {
    let (outcome, output) = running.collect(OutputCaps::default()).unwrap();
    (outcome.status, output.stdout.text() + &output.stderr.text())
}

fn a_command_asks_and_reads_the_answer() {
    let fixture = Fixture::new();
    let mut running = asking(
        &fixture,
        "echo $BELAY_ASK; echo may I >&4; read a <&3; echo \"$a\"; echo again >&4; read a <&3; echo \"$a\"",
    );
    assert_eq!(question(&mut running), "may I\n");
    answer(&mut running, "yes\n");
    assert_eq!(question(&mut running), "again\n");
    answer(&mut running, "no\n");
    assert_eq!(end(running), (Status::Exited(0), "3,4\nyes\nno\n".to_owned()));
}

fn its_children_ask_too() {
    let fixture = Fixture::new();
    let mut running = asking(&fixture, "(sh -c 'echo $$ >&4; head -n 1 <&3')");
    assert!(question(&mut running).trim().parse::<u32>().is_ok());
    answer(&mut running, "yes\n");
    assert_eq!(end(running), (Status::Exited(0), "yes\n".to_owned()));
}

fn the_pipes_can_be_opened_by_name() {
    let fixture = Fixture::new();
    let mut running = asking(&fixture, "echo one > /dev/fd/4; read a < /dev/fd/3; echo \"$a\"");
    assert_eq!(question(&mut running), "one\n");
    answer(&mut running, "two\n");
    assert_eq!(end(running), (Status::Exited(0), "two\n".to_owned()));
}

fn a_command_that_may_not_ask_has_no_pipes() {
    let fixture = Fixture::new();
    let script = "echo ${BELAY_ASK-unset}; for fd in /proc/self/fd/*; do echo ${fd##*/}; done | sort -n | tail -n 1; echo x 2>/dev/null >&4 || echo closed";
    let seen = succeed(fixture.script(script));
    assert!(seen.starts_with("unset\n") && seen.ends_with("closed\n"), "{seen}");
    let mut running = launch(fixture.script("true"));
    assert!(running.from_command.is_none() && running.to_command.is_none());
    running.wait().unwrap();
    // The shell lives on without a pipe of its own while the other program looks.
    let open = "ls /proc/$$/fd; true";
    assert_eq!(succeed(fixture.script(open)), "0\n1\n2\n");
    // One that may has nothing else.
    assert_eq!(end(asking(&fixture, open)), (Status::Exited(0), "0\n1\n2\n3\n4\n".to_owned()));
}

fn no_variable_takes_the_place_of_the_pipes() {
    let fixture = Fixture::new();
    let env = vec![("BELAY_ASK".to_owned(), "0,1".into())];
    assert_eq!(succeed(Spec { env: env.clone(), ..fixture.script("echo ${BELAY_ASK-unset}") }), "unset\n");
    let running = launch(Spec { env, dialogue: Some(Dialogue::Questions), ..fixture.script("echo $BELAY_ASK") });
    assert_eq!(end(running), (Status::Exited(0), "3,4\n".to_owned()));
    // Nor one of the operator.
    let settings = Settings { env: vec![("BELAY_ASK".to_owned(), "0,1".into())], ..Settings::default() };
    let launcher = NamespaceLauncher::new(settings).unwrap();
    assert_eq!(succeed_by(&launcher, fixture.script("echo ${BELAY_ASK-unset}")), "unset\n");
    assert_eq!(
        succeed_by(&launcher, Spec { dialogue: Some(Dialogue::Questions), ..fixture.script("echo $BELAY_ASK") }),
        "3,4\n"
    );
}

/// Neither the launcher nor init holds them open.
fn the_pipes_end_with_the_command() {
    let fixture = Fixture::new();
    // The command closes its end, and goes on.
    let mut running = asking(&fixture, "echo last >&4; exec 4>&-; read a <&3; echo \"$a\"");
    let mut questions = String::new();
    running.from_command.take().unwrap().read_to_string(&mut questions).unwrap();
    assert_eq!(questions, "last\n");
    answer(&mut running, "go on\n");
    assert_eq!(end(running), (Status::Exited(0), "go on\n".to_owned()));
}

fn a_command_reads_the_end_of_its_answers() {
    let fixture = Fixture::new();
    let mut running = asking(&fixture, "cat <&3; echo end");
    answer(&mut running, "some\n");
    drop(running.to_command.take());
    assert_eq!(end(running), (Status::Exited(0), "some\nend\n".to_owned()));
}

fn answers_that_are_not_read_keep_no_command_from_being_killed() {
    let fixture = Fixture::new();
    let mut running = asking(&fixture, &format!("exec sleep {}", nap()));
    let mut answers = running.to_command.take().unwrap();
    // No more fits in.
    let room = rustix::pipe::fcntl_getpipe_size(&answers).unwrap();
    answers.write_all(&vec![b'a'; room]).unwrap();
    let writer = thread::spawn(move || answers.write_all(b"more"));
    running.kill_handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Killed);
    assert_eq!(writer.join().unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
}

fn a_command_that_floods_its_questions_ends_at_its_time_limit() {
    let fixture = Fixture::new();
    let running =
        launch(Spec { dialogue: Some(Dialogue::Questions), timeout: Some(LIMIT), ..fixture.script("yes >&4") });
    assert_eq!(end(running).0, Status::TimedOut);
}

fn the_time_limit_stands_still() {
    let fixture = Fixture::new();
    let spec = Spec {
        dialogue: Some(Dialogue::Questions),
        timeout: Some(LIMIT),
        ..fixture.script("echo q >&4; read a <&3; echo \"$a\"")
    };
    let mut running = launch(spec);
    let mut timer = running.timer().unwrap();
    timer.stop().unwrap();
    timer.stop().unwrap();
    question(&mut running);
    thread::sleep(LIMIT * 2);
    timer.go_on().unwrap();
    timer.go_on().unwrap();
    answer(&mut running, "in time\n");
    assert_eq!(end(running), (Status::Exited(0), "in time\n".to_owned()));
}

fn the_rest_of_the_time_limit_goes_on() {
    let fixture = Fixture::new();
    let mut running = launch(Spec {
        dialogue: Some(Dialogue::Questions),
        timeout: Some(LIMIT),
        ..fixture.script("echo q >&4; read a <&3")
    });
    let mut timer = running.timer().unwrap();
    question(&mut running);
    timer.stop().unwrap();
    thread::sleep(LIMIT);
    timer.go_on().unwrap();
    // Nobody answers: only its time limit ends it.
    assert_eq!(end(running).0, Status::TimedOut);
}

fn a_timer_of_nothing_changes_nothing() {
    let fixture = Fixture::new();
    let mut running = launch(fixture.script("true"));
    let mut timer = running.timer().unwrap();
    timer.stop().unwrap();
    timer.go_on().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Exited(0));
    drop(running.tear_down());
    timer.stop().unwrap();
}

fn a_server_speaks_over_its_standard_streams() {
    let fixture = Fixture::new();
    let script = "while read line; do echo \"reply: $line\"; echo \"log: $line\" >&2; done; echo done >&2";
    let mut running = launch(Spec { dialogue: Some(Dialogue::StandardStreams), ..fixture.script(script) });
    let mut to = running.to_command.take().unwrap();
    for line in ["one", "two"] {
        to.write_all(format!("{line}\n").as_bytes()).unwrap();
        assert_eq!(question(&mut running), format!("reply: {line}\n"));
    }
    // It reads the end of its input.
    drop(to);
    let (outcome, output) = running.collect(OutputCaps::default()).unwrap();
    assert_eq!(outcome.status, Status::Exited(0));
    let expected = (String::new(), "log: one\nlog: two\ndone\n".to_owned());
    assert_eq!((output.stdout.text(), output.stderr.text()), expected);
}

fn a_server_has_no_other_descriptors() {
    let fixture = Fixture::new();
    let script = "echo /proc/self/fd/* $BELAY_ASK";
    let mut running = launch(Spec { dialogue: Some(Dialogue::StandardStreams), ..fixture.script(script) });
    let seen = question(&mut running);
    // The shell's own, for the directory that it lists.
    assert_eq!(seen, "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n");
}
