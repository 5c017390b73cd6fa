//! Declared tools that ask while they run.

use std::{fs, path::Path, time::Duration};

use belay_e2e::{Client, Home, Service, Services, client::name, client::retry, people::Person};
use belay_proto::v1::{self, approval::State as Asked, execution::State};
use serde_json::{Value, json};

/// A tool that asks for an approval, then for a region, and writes both replies to a file. Its time limit is much shorter than people take.
const CONFIG: &str = r#"
tools:
  deploy:
    description: Asks before it deploys.
    asks: true
    timeout: 2s
    output: text
    command:
      - sh
      - -c
      - |
        echo '{"id": 1, "title": "Deploy to production?"}' >&4
        read approval <&3
        echo '{"id": "where", "title": "Which region?", "schema": {"type": "object", "required": ["region"], "additionalProperties": false, "properties": {"region": {"enum": ["eu", "us"]}}}}' >&4
        read region <&3
        echo "$approval $region" | tee asked.txt
"#;

/// A person is asked before the tool runs, too.
const POLICY: &str =
    "rules: [{id: deploys, on: intent, tools: [deploy], decide: prompt, reason: Someone must know.}]\n";

const PLAN: &str = "id: ship\nsteps:\n- {id: go, tool: deploy}\n- {id: last, tool: noop, depends_on: [go]}\n";

/// The replies that the tool printed.
fn replies(output: &Value) -> Vec<Value> {
    let text = output.as_str().unwrap_or_default();
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A person at the command line answers what a tool asks, at leisure; the screens say who is waited for.
#[test]
fn a_tool_asks_and_a_person_answers() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("config.yaml", CONFIG);
    home.file("plan.yaml", PLAN);
    home.file("policy.yaml", POLICY);
    let _server = home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let start = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "s", "--approve", "prompt", "--detach"]);
    assert_eq!(start.code, 0, "{start:?}");
    let pending = |title: &str| -> String {
        for _ in 0..600 {
            let (_, listed) = home.json(&["approvals", "list"]);
            let found = listed["approvals"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|one| one["operation"] == title || one["kind"] == title);
            if let Some(found) = found {
                return found["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("nobody is asked `{title}`: {}", home.run(["executions", "get", "s"]).out)
    };
    // Approved before it runs, it asks all the same.
    let intent = pending("KIND_CALL");
    assert_eq!(home.run(["approve", &intent, "--yes"]).code, 0);
    let first = pending("Deploy to production?");
    let why = home.run(["why", "s"]);
    assert!(why.out.contains("waiting for a person's answer to `Deploy to production?`"), "{}", why.out);
    let listed = home.run(["approvals", "list"]).out;
    assert!(listed.contains("s/go") && listed.contains("an answer"), "{listed}");
    // Longer than its time limit.
    std::thread::sleep(Duration::from_secs(3));
    let wrong = home.run(["approvals", "answer", &first, "--value", r#"{"approve": "perhaps"}"#]);
    assert_ne!(wrong.code, 0, "{wrong:?}");
    let answered = home.run(["approvals", "answer", &first, "--value", r#"{"approve": true}"#]);
    assert_eq!(answered.code, 0, "{answered:?}");
    let second = pending("Which region?");
    assert_eq!(home.run(["approvals", "answer", &second, "--value", r#"{"region": "eu"}"#]).code, 0);
    // What its tool has done is approved apart from what it asked.
    let effect = pending("KIND_EFFECT");
    assert_eq!(home.run(["approve", &effect, "--yes"]).code, 0);
    let waited = home.run(["executions", "watch", "s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let (_, step) = home.json(&["executions", "get", "s"]);
    let said = replies(&step["steps"][0]["output"]);
    assert_eq!(
        said,
        [
            json!({"id": 1, "status": "approved"}),
            json!({"id": "where", "status": "answered", "answer": {"region": "eu"}})
        ]
    );
    assert!(home.path("w").join("asked.txt").exists(), "its changes are committed");
    let events = home.run(["executions", "events", "s"]).out;
    assert!(events.contains("asks Deploy to production?"), "{events}");
}

/// A run that asks nobody says so to the tool.
#[test]
fn a_tool_of_a_run_that_asks_nobody_goes_on() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("config.yaml", CONFIG);
    home.file("plan.yaml", PLAN);
    let _server = home.serve_with(&["--config", "config.yaml"]);
    let unasked = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "u", "--approve", "fail"]);
    assert_eq!(unasked.code, 33, "its change needs an approval: {unasked:?}");
    let events = home.run(["executions", "events", "u"]).out;
    assert_eq!(events.matches("denied, without asking a person").count(), 3, "{events}");
}

/// A plan's `run_terminal` may not ask, whatever it sets; a tool whose lines are no questions is told so; and one that may not ask any more reads why.
#[test]
fn what_is_no_question_is_refused() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "config.yaml",
        r#"
commands: {asking_calls: 0}
tools:
  garbage:
    asks: true
    output: text
    command: [sh, -c, 'echo nonsense >&4; read a <&3; echo "$a"; echo "{\"id\": 7, \"title\": \"Now?\"}" >&4; read a <&3; echo "$a"']
  quiet:
    output: text
    command: [sh, -c, 'echo $${BELAY_ASK-none}; (echo x >&4) 2>/dev/null || echo closed']
"#,
    );
    home.file(
        "plan.yaml",
        "id: p\nsteps:\n- {id: garbage, tool: garbage}\n- {id: quiet, tool: quiet}\n- {id: run, tool: run_terminal, arguments: {command: [sh, -c, 'echo $${BELAY_ASK-none}'], env: {BELAY_ASK: '1,2'}}}\n",
    );
    let ended = home.run([
        "run",
        "plan.yaml",
        "--config",
        "config.yaml",
        "--workspace",
        "w",
        "--approve",
        "prompt",
        "-o",
        "json",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let execution: Value = serde_json::from_str(&ended.out).unwrap();
    let said = replies(&execution["steps"][0]["output"]);
    assert_eq!((&said[0]["id"], &said[0]["status"]), (&Value::Null, &json!("refused")));
    assert!(said[0]["reason"].as_str().unwrap().contains("one JSON object"), "{said:?}");
    assert_eq!((&said[1]["id"], &said[1]["status"]), (&json!(7), &json!("refused")));
    assert!(said[1]["reason"].as_str().unwrap().contains("commands.asking_calls"), "{said:?}");
    assert_eq!(execution["steps"][1]["output"], "none\nclosed");
    assert_eq!(execution["steps"][2]["output"]["stdout"], "none\n");
}

/// A program that has closed its output asks all the same, and one that reads no reply any more ends at its time limit once its question has one.
#[test]
fn a_program_without_output_asks_and_one_that_does_not_listen_ends() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "config.yaml",
        r#"
tools:
  silent:
    asks: true
    timeout: 1s
    output: text
    command: [sh, -c, 'exec >&- 2>&-; echo "{\"id\": 1, \"title\": \"Go?\", \"timeout_seconds\": 2}" >&4; read a <&3; case "$a" in *timed_out*) ;; *) exit 5 ;; esac']
  deaf:
    asks: true
    timeout: 1s
    output: text
    command: [sh, -c, 'echo "{\"id\": 1, \"title\": \"Go?\", \"timeout_seconds\": 2}" >&4; exec 3<&-; sleep 1000']
"#,
    );
    home.file("plan.yaml", "id: p\nparallelism: 2\nsteps:\n- {id: silent, tool: silent}\n- {id: deaf, tool: deaf}\n");
    let _server = home.serve_with(&["--config", "config.yaml"]);
    let start = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "s", "--approve", "prompt", "--detach"]);
    assert_eq!(start.code, 0, "{start:?}");
    assert_eq!(home.run(["executions", "watch", "s"]).code, 34);
    let (_, execution) = home.json(&["executions", "get", "s"]);
    let steps = execution["steps"].as_array().unwrap();
    assert_eq!(steps[0]["state"], "STATE_COMPLETED", "{execution:#}");
    assert_eq!((&steps[1]["state"], &steps[1]["failure"]["code"]), (&json!("STATE_FAILED"), &json!("TIMEOUT")));
}

async fn answer(person: &Person, asked: &v1::Approval, json: &str) {
    let request = v1::AnswerFormRequest {
        name: asked.name.clone(),
        subject_digest: asked.subject_digest.clone(),
        answer: Some(v1::Payload::of_json(json)),
        ..Default::default()
    };
    retry(|| async { person.raw().answer_form(request.clone()).await }).await.expect("the form takes the answer");
}

/// The oldest question of an execution with this title.
async fn asked(person: &Person, id: &str, title: &str) -> v1::Approval {
    let found = async {
        loop {
            let question = person.question(&name(id)).await;
            if question.form.as_ref().is_some_and(|form| form.title == title) {
                return question;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.unwrap_or_else(|_| panic!("nobody is asked `{title}`"))
}

fn run_with(services: &mut Services, config: &Path) {
    services.launch_with(Service::Runner, &["--config", config.to_str().unwrap()]);
}

/// A question outlives the executor and the gate, which are killed while it is open, and is answered once. It ends with the runner that ran the call: what
/// runs anew asks anew, and an answer to the earlier question is taken for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_outlives_the_executor_and_the_gate_and_ends_with_its_runner() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    fs::write(&config, CONFIG).unwrap();
    let mut services = Services::start(folder.path()).await;
    services.kill(Service::Runner).await;
    run_with(&mut services, &config);
    services.ready().await;
    let (client, person) = (Client::new(&services.socket()), Person::at(&services.people()));
    client.start_in("e", PLAN, &services.workspace("w")).await;
    let first = asked(&person, "e", "Deploy to production?").await;

    // The runner that runs the call is killed: the call runs anew, and so does its question.
    services.kill(Service::Runner).await;
    run_with(&mut services, &config);
    services.ready().await;
    let withdrawn = async {
        loop {
            let request = v1::GetApprovalRequest { name: first.name.clone(), ..Default::default() };
            if person.raw().get_approval(request).await.unwrap().into_inner().state() == Asked::Cancelled {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), withdrawn).await.expect("the question of the lost call is withdrawn");
    let again = asked(&person, "e", "Deploy to production?").await;
    assert_ne!(again.name, first.name);

    // Both services that keep it are killed.
    services.restart(Service::Executor).await;
    services.restart(Service::Gate).await;
    services.ready().await;
    assert_eq!(asked(&person, "e", "Deploy to production?").await.name, again.name);
    answer(&person, &again, r#"{"approve": false}"#).await;
    services.restart(Service::Executor).await;
    let region = asked(&person, "e", "Which region?").await;
    answer(&person, &region, r#"{"region": "us"}"#).await;
    // What its tool has done is approved apart from what it asked.
    let effect = person.question(&name("e")).await;
    assert!(effect.form.is_none(), "{effect:#?}");
    person.decide(&effect, v1::Decision::Approve).await.unwrap();
    let picture = client.watch_to_the_end("e").await;
    assert_eq!(picture.state(), Some(State::Completed));
    let steps = client.steps("e").await;
    let output = steps[0].output.as_ref().and_then(|output| output.as_json()).unwrap_or_default();
    let said = replies(&serde_json::from_str(output).unwrap());
    assert_eq!(
        said,
        [
            json!({"id": 1, "status": "denied"}),
            json!({"id": "where", "status": "answered", "answer": {"region": "us"}})
        ]
    );
    assert!(person.list().await.iter().all(|approval| approval.state() != Asked::Pending), "nothing is asked any more");
}
