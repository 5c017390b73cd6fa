//! Webhooks: each message comes at least once, whatever its receiver does and whenever the executor is killed, and can be verified as documented.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use belay_e2e::{Client, Person, Service, Services, client::name};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::metrics::until_scraped;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const FAILS: &str = "
id: fails
steps: [{id: broken, tool: noop, arguments: {fail: 'the disk said ghp_Wh81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk'}, retry: {max_attempts: 1}}]
";

/// A request that waits for its answer.
struct PostedRequest {
    stream: BufReader<TcpStream>,
    headers: BTreeMap<String, String>,
    body: String,
}

impl PostedRequest {
    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    async fn answer(mut self, status: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// A receiver that hands over each request, and answers when it is told to.
struct Receiver(TcpListener);

impl Receiver {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.0.local_addr().unwrap())
    }

    async fn next(&self) -> PostedRequest {
        let accepted = tokio::time::timeout(std::time::Duration::from_secs(60), self.0.accept()).await;
        let (stream, _) = accepted.expect("a message comes").unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert_eq!(line.trim_end(), "POST /hook HTTP/1.1");
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.unwrap();
            let Some((key, value)) = header.trim_end().split_once(": ") else { break };
            headers.insert(key.to_owned(), value.to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        PostedRequest { stream, headers, body: String::from_utf8(body).unwrap() }
    }
}

/// Writes settings with these webhooks: name, URL and events. Returns the file.
fn settings(folder: &Path, webhooks: &[(&str, &str, &str)]) -> String {
    let secret = folder.join("secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let mut text = String::from("webhooks:\n");
    for (name, url, events) in webhooks {
        text += &format!("  {name}: {{url: '{url}', events: [{events}], secret_file: {}}}\n", secret.display());
    }
    let file = folder.join("config.yaml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Services with these webhooks.
async fn services(folder: &Path, policy: &str, webhooks: &[(&str, &str, &str)]) -> (Services, String) {
    let config = settings(folder, webhooks);
    let mut services = Services::logging(folder, policy, "info").await;
    restart(&mut services, &config).await;
    (services, config)
}

/// Kills the executor, and starts it with these settings.
async fn restart(services: &mut Services, config: &str) {
    services.kill(Service::Executor).await;
    services.launch_with(Service::Executor, &["--config", config]);
    services.ready().await;
}

/// The block of code in this language that the page about webhooks has.
fn documented(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user-guide/webhooks.md");
    let page = fs::read_to_string(page).unwrap();
    let block = page.split(&format!("```{language}\n")).nth(1).expect("the page has such a block");
    block.split("```").next().unwrap().to_owned()
}

/// Runs the documented verification of a language: the message as it came is accepted, and a changed one is not.
fn verify(program: &str, language: &str, call: &str, posted: &PostedRequest) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("verify");
    fs::write(&script, format!("{}\n{call}\n", documented(language))).unwrap();
    let run = |body: &str| {
        let headers = serde_json::to_string(&posted.headers).unwrap();
        Command::new(program).arg(&script).args([SECRET, &headers, body]).output()
    };
    let Ok(accepted) = run(&posted.body) else {
        eprintln!("skipped: verification with {program}, which is not installed");
        return;
    };
    assert!(accepted.status.success(), "{program}: {}", String::from_utf8_lossy(&accepted.stderr));
    let changed = run(&posted.body.replace("FAILED", "COMPLETED")).unwrap();
    let said = String::from_utf8_lossy(&changed.stderr).into_owned();
    assert!(!changed.status.success() && said.contains("the signature is wrong"), "{program}: {said}");
}

/// The message of a failure, verified as the page shows, comes again with the same id after each refusal and after the executor is killed between
/// the event and the delivery; once it is accepted it comes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_comes_again_until_it_is_accepted_also_after_the_executor_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start().await;
    let url = receiver.url();
    let (mut services, config) = services(folder.path(), "{}", &[("alerts", &url, "execution.failed")]).await;
    let client = Client::new(&services.socket());
    client.start("one", FAILS).await;
    let first = receiver.next().await;
    let json = first.json();
    assert_eq!(json["type"], "execution.failed");
    assert_eq!(json["data"]["execution"], name("one"));
    assert_eq!((&json["data"]["planId"], &json["data"]["state"]), (&"fails".into(), &"FAILED".into()));
    assert_eq!(json["data"]["failure"]["reason"], "TOOL_FAILED");
    let message = json["data"]["failure"]["message"].as_str().unwrap();
    assert!(message.contains("the disk said") && !message.contains("ghp_"), "{message}");
    let uid = client.get("one").await.uid;
    assert!(first.id().starts_with(&uid) && first.id().ends_with(".execution.failed.alerts"), "{uid}: {}", first.id());
    let python = "import json, sys\nverify(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode())";
    verify("python3", "python", python, &first);
    let node = "verify(process.argv[2], JSON.parse(process.argv[3]), Buffer.from(process.argv[4]));";
    verify("node", "js", node, &first);
    let (id, body) = (first.id().to_owned(), first.body.clone());
    first.answer("500 Internal Server Error").await;
    let second = receiver.next().await;
    assert_eq!((second.id(), &second.body), (id.as_str(), &body), "it is tried again");
    // Killed while the receiver has it, and nothing is recorded.
    restart(&mut services, &config).await;
    drop(second);
    let third = receiver.next().await;
    assert_eq!((third.id(), &third.body), (id.as_str(), &body), "it is sent again by the next process");
    third.answer("204 No Content").await;
    until_scraped(&services, "belay_executor_webhook_messages 0.0").await;
    // A later one, and none of the first before it.
    client.start("two", FAILS).await;
    let next = receiver.next().await;
    assert_eq!(next.json()["data"]["execution"], name("two"));
    next.answer("200 OK").await;
    until_scraped(&services, "belay_executor_webhook_attempts_total{outcome=\"delivered\"} 2").await;
    restart(&mut services, &config).await;
    client.start("three", FAILS).await;
    assert_eq!(receiver.next().await.json()["data"]["execution"], name("three"), "what was accepted comes no more");
    let log = services.log(Service::Executor);
    assert!(log.contains("A webhook does not accept messages") && log.contains("webhook=\"alerts\""), "{log}");
    assert!(!log.contains("/hook"), "the path may be a secret: {log}");
}

/// S2-NFR-003: a receiver that never answers, and one that is not there, hold up neither executions nor another receiver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_holds_up_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (hanging, receiver, gone) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let [a, b, c] = [hanging.url(), receiver.url(), gone.url()];
    drop(gone);
    let webhooks = [
        ("hanging", a.as_str(), "execution.finished"),
        ("fine", b.as_str(), "execution.waiting, execution.finished"),
        ("gone", c.as_str(), "execution.finished"),
    ];
    let (services, _) = services(folder.path(), "file_write: prompt\n", &webhooks).await;
    let client = Client::new(&services.socket());
    let mut held = Vec::new();
    for n in 0..3 {
        client.start(&format!("e{n}"), "id: quick\nsteps: [{id: a, tool: noop}]\n").await;
        assert!(client.watch_to_the_end(&format!("e{n}")).await.ended());
        let posted = receiver.next().await;
        let json = posted.json();
        assert_eq!((&json["type"], &json["data"]["state"]), (&"execution.finished".into(), &"COMPLETED".into()));
        assert_eq!(json["data"]["execution"], name(&format!("e{n}")));
        posted.answer("200 OK").await;
        // Their answers never come.
        held.push(hanging.next().await);
    }
    // A wait for a person says what to do.
    client.start("asks", "id: asks\nsteps: [{id: w, tool: write_file, arguments: {path: a.txt, content: x}}]\n").await;
    let posted = receiver.next().await;
    let json = posted.json();
    assert_eq!(json["type"], "execution.waiting");
    let wait = &json["data"]["waiting"][0];
    assert_eq!((&wait["kind"], &wait["stepId"]), (&"APPROVAL".into(), &"w".into()), "{json}");
    let question = Person::at(&services.people()).question(&name("asks")).await;
    let id = question.name.rsplit('/').next().unwrap();
    assert_eq!(wait["nextCommand"], format!("belay approvals show {id}"));
    posted.answer("200 OK").await;
}

/// Settings that cannot be used stop the start with the field's name, and without the secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_settings_are_refused_by_their_field() {
    let folder = tempfile::tempdir().unwrap();
    let (mut services, config) =
        services(folder.path(), "{}", &[("alerts", "http://127.0.0.1:9/", "execution.failed")]).await;
    services.kill(Service::Executor).await;
    let secret = folder.path().join("secret");
    let text = fs::read_to_string(&config).unwrap();
    let cases: [(&dyn Fn(), &str); 3] = [
        (&|| fs::write(&secret, "plain-password").unwrap(), "webhooks.alerts.secret_file: "),
        (&|| fs::remove_file(&secret).unwrap(), "cannot be read: No such file"),
        (&|| fs::write(&config, text.replace("execution.failed", "failed")).unwrap(), "webhooks.alerts.events[0]: "),
    ];
    for (damage, says) in cases {
        damage();
        services.launch_with(Service::Executor, &["--config", &config]);
        assert_ne!(services.ended(Service::Executor).await, Some(0));
        let log = services.log(Service::Executor);
        assert!(log.contains(says) && !log.contains("plain-password"), "{says}: {log}");
    }
}
