//! Creating approvals, and their previews.

use std::{path::Path, sync::atomic::Ordering};

use belay_defects::{Defect, assert_attack_needs};
use belay_grant::{CallWords, Change, ChangeKind, Gravity, HiddenWords, Kind, Subject, digest_of};
use belay_proto::{
    gate_v1,
    v1::{self, approval::State},
};
use belay_service_kit::{Principal, Role};
use belay_settings::GateLimits;
use tonic::Code;

use crate::support::*;

/// S2-FR-049, S2-FR-050, S2-FR-051, S2-X-17: the preview shows operation, files, content and reason of what the policy requires approval for.
#[test]
fn a_preview_is_rendered_from_the_runners_subject() {
    world("", async |world| {
        let subject = effect("e");
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &[(&digest_of(b"made\n"), b"made\n")]);
        let executor = world.executor.clone();
        let asked =
            executor.services().create_approval(request(&subject, v1::ApprovalMode::Wait)).await.unwrap().into_inner();
        assert_eq!(asked.state(), State::Pending);
        assert_eq!(
            (asked.operation.as_str(), asked.requested_by.as_str()),
            ("run_terminal: make all", "person:planner")
        );
        assert!(asked.subject.is_empty() && asked.preview.is_none(), "the response has the BASIC view");
        assert_eq!(asked.expire_time, None);

        let full = world.get(&asked.name).await;
        assert_eq!((full.subject, full.subject_digest), (subject.canonical_bytes(), subject.digest()));
        assert_eq!(
            (full.execution, full.step_id, full.call),
            (subject.execution.clone(), "build".into(), call_of(&subject))
        );
        let decision = full.decision.unwrap();
        assert_eq!((decision.rule, decision.reason), (subject.rule.clone(), subject.reason.clone()));
        assert_eq!(full.effect.unwrap().created, 1);
        let preview = full.preview.unwrap();
        assert!(preview.reach.contains(&"no network".to_owned()), "{:?}", preview.reach);
        assert_eq!(preview.files[0].unified, "@@ -0,0 +1 @@\n+made\n");
    });
}

/// Duties are separated by the requester: an approval that names another requester is not returned as this one's.
#[test]
fn an_approval_of_another_requester_is_not_taken_for_the_same() {
    world("", async |world| {
        let subject = effect("e");
        let asked = world.ask(&subject).await;
        let again = request(&subject, v1::ApprovalMode::Wait);
        let mut services = world.executor.services();
        assert_eq!(services.create_approval(again.clone()).await.unwrap().into_inner().name, asked.name);
        let other = gate_v1::CreateApprovalRequest { requested_by: "person:mallory".into(), ..again };
        let refused = refusal(services.create_approval(other).await.map(tonic::Response::into_inner));
        assert_eq!(refused, (Code::AlreadyExists, "ALREADY_EXISTS".into()));
    });
}

/// S2-FR-077a, S2-X-16: what looks like a secret is neither stored nor shown, although contents arrive unredacted.
#[test]
fn an_approval_hides_secrets() {
    world("", async |world| {
        let token = concat!("ghp_", "Zx81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk");
        let text = format!("token = {token}\nplain\n");
        let mut subject = effect("e");
        subject.changes[0].after = digest_of(text.as_bytes());
        subject.changes[0].path = "made".into();
        world.runner.hold(
            &call_of(&subject),
            &subject.canonical_bytes(),
            &[(&digest_of(text.as_bytes()), text.as_bytes())],
        );
        let request = request(&subject, v1::ApprovalMode::Wait);
        let asked = world.executor.services().create_approval(request).await.unwrap().into_inner();
        let preview = world.get(&asked.name).await.preview.unwrap();
        assert_eq!(preview.files[0].unified, "@@ -0,0 +1,2 @@\n+token = [REDACTED]\n+plain\n");
        let decision = v1::DecideApprovalRequest {
            name: asked.name.clone(),
            subject_digest: asked.subject_digest.clone(),
            decision: v1::Decision::Deny.into(),
            reason: format!("{token} is mine"),
            ..Default::default()
        };
        let decided = world.person.people().decide_approval(decision).await.unwrap().into_inner();
        assert_eq!(decided.decide_reason, "[REDACTED] is mine");
        assert_nowhere(&world.folder, &[token.to_owned()]);
    });
}

/// No file of the gate contains any of these.
fn assert_nowhere(folder: &Path, secrets: &[String]) {
    for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            for secret in secrets {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{:?} holds {secret}", file.file_name());
            }
        }
    }
}

/// S2-FR-077a, S2-X-16: no line of a private key is stored or shown, wherever in it a hunk begins; the diff keeps its lines.
#[test]
fn an_approval_hides_every_line_of_a_private_key() {
    /// As long as an RSA key of 2048 bits, but not a real key.
    fn line(seed: usize) -> String {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        (0..64).map(|at| char::from(letters[(seed * 131 + at * (at + seed)) % 64])).collect()
    }
    fn key(lines: &[String]) -> String {
        let label = ["RSA PRIVATE", "KEY"].join(" ");
        format!("# deploy\n-----BEGIN {label}-----\n{}\n-----END {label}-----\nuser: x\n", lines.join("\n"))
    }
    world("", async |world| {
        let old: Vec<String> = (0..26).map(line).collect();
        let mut new = old.clone();
        new[12] = line(99);
        let (before, after) = (key(&old), key(&new));
        let change = |path: &str, kind, before: &str, after: &str| Change {
            path: path.into(),
            path_digest: String::new(),
            kind,
            gravity: Gravity::Modified,
            protection: String::new(),
            before: if before.is_empty() { String::new() } else { digest_of(before.as_bytes()) },
            after: if after.is_empty() { String::new() } else { digest_of(after.as_bytes()) },
            what: "file 0600".into(),
            flags: Vec::new(),
            folder: None,
        };
        let changes = vec![
            change("gone", ChangeKind::Deleted, &before, ""),
            change("turned", ChangeKind::Modified, &before, &after),
            change("made", ChangeKind::Created, "", &after),
        ];
        let subject = Subject { changes, ..effect("e") };
        let contents = [&before, &after].map(|text| (digest_of(text.as_bytes()), text.clone()));
        let contents: Vec<_> = contents.iter().map(|(digest, text)| (digest.as_str(), text.as_bytes())).collect();
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &contents);
        let request = request(&subject, v1::ApprovalMode::Wait);
        let asked = world.executor.services().create_approval(request).await.unwrap().into_inner();
        let preview = world.get(&asked.name).await.preview.unwrap();

        let label = ["RSA PRIVATE", "KEY"].join(" ");
        let whole = |sign: &str| {
            let lines = format!("{sign}[REDACTED]\n").repeat(26);
            format!(
                "{sign}# deploy\n{sign}-----BEGIN {label}-----\n{lines}{sign}-----END {label}-----\n{sign}user: x\n"
            )
        };
        let around = " [REDACTED]\n".repeat(3);
        let turned = format!("@@ -12,7 +12,7 @@\n{around}-[REDACTED]\n+[REDACTED]\n{around}");
        let shown: Vec<_> = preview.files.iter().map(|file| file.unified.as_str()).collect();
        assert_eq!(
            shown,
            [format!("@@ -1,30 +0,0 @@\n{}", whole("-")), turned, format!("@@ -0,0 +1,30 @@\n{}", whole("+"))]
        );
        let secrets: Vec<String> = old.iter().chain(&new).map(|line| line[..32].to_owned()).collect();
        assert_nowhere(&world.folder, &secrets);
    });
}

/// B-18, B-19: who may decide can see what is hidden before deciding, and the approval keeps who did; nobody else can, and it is stored nowhere.
#[test]
fn who_may_decide_can_reveal_what_is_hidden() {
    world("", async |world| {
        let secret = ["gh", "p_", "0123456789abcdefghijABCDEFGHIJ456789"].concat();
        let (path, content) = (format!("keys/{secret}"), format!("one\ntoken: {secret}\nthree\n"));
        let mut subject = effect("e");
        let change = &mut subject.changes[0];
        (change.path, change.path_digest) = ("keys/[REDACTED]".into(), digest_of(path.as_bytes()));
        (change.gravity, change.after) = (Gravity::Flagged, digest_of(content.as_bytes()));
        change.flags = vec![Change::HIDDEN_NAME.into()];
        let held = [&path, &content].map(|text| (digest_of(text.as_bytes()), text.clone()));
        let held: Vec<_> = held.iter().map(|(digest, text)| (digest.as_str(), text.as_bytes())).collect();
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &held);
        let request = request(&subject, v1::ApprovalMode::Wait);
        let asked = world.executor.services().create_approval(request).await.unwrap().into_inner();
        let shown = world.get(&asked.name).await.preview.unwrap().files.remove(0);
        assert_eq!(
            (shown.unified.as_str(), shown.hidden_lines),
            ("@@ -0,0 +1,3 @@\n+one\n+token: [REDACTED]\n+three\n", 1)
        );
        assert!(shown.note.contains("lines with something hidden: assigned-plain 1"), "{}", shown.note);

        let reveal =
            |name: &str| v1::GetApprovalChangeRequest { name: name.into(), reveal: true, ..Default::default() };
        let viewer = world.client_for(&Principal::person("viewer", [Role::Viewer, Role::Planner]));
        let refused = viewer.people().get_approval_change(reveal(&asked.name)).await;
        assert_eq!(refusal(refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
        assert_eq!(world.get(&asked.name).await.reveals, []);
        let hidden = v1::GetApprovalChangeRequest { name: asked.name.clone(), ..Default::default() };
        let hidden = viewer.people().get_approval_change(hidden).await.unwrap().into_inner().change.unwrap();
        assert!(!format!("{hidden:?}").contains(&secret), "{hidden:?}");

        let ann = world.client_for(&Principal::person("ann", [Role::Approver]));
        for _ in 0..2 {
            let answer = ann.people().get_approval_change(reveal(&asked.name)).await.unwrap().into_inner();
            let revealed = answer.change.unwrap();
            assert_eq!(revealed.unified, format!("@@ -0,0 +1,3 @@\n+one\n+token: {secret}\n+three\n"));
            assert_eq!((revealed.change.unwrap().path, revealed.hidden_lines), (path.clone(), 0));
        }
        let kept = world.get(&asked.name).await;
        let told: Vec<_> =
            kept.reveals.iter().map(|one| (one.principal.as_str(), one.index, one.digest.clone())).collect();
        assert_eq!(told, [("person:ann", 0, digest_of(content.as_bytes()))], "once, however often she looks");
        assert!(kept.reveals[0].reveal_time.is_some() && kept.state() == State::Pending);
        assert!(!format!("{kept:?}").contains(&secret), "{kept:?}");
        assert_nowhere(&world.folder, &[secret]);
    });
}

/// B-18, B-19: so can the words of a call that has not run; a viewer cannot, and they are stored nowhere.
#[test]
fn who_may_decide_can_reveal_the_words_of_a_call() {
    world("", async |world| {
        let secret = ["gh", "p_", "0123456789abcdefghijABCDEFGHIJ456789"].concat();
        let words = CallWords {
            arguments: format!(r#"{{"command":["curl","{secret}"],"env":{{"PIN":"12"}}}}"#),
            command: vec!["curl".into(), secret.clone()],
            working_directory: format!("of/{secret}"),
        };
        let bytes = words.canonical_bytes();
        let subject = Subject {
            kind: Kind::Call,
            arguments: r#"{"command":["curl","[REDACTED]"],"env":{"PIN":"[REDACTED]"}}"#.into(),
            command: vec!["curl".into(), "[REDACTED]".into()],
            working_directory: "of/[REDACTED]".into(),
            hidden: Some(HiddenWords {
                digest: digest_of(&bytes),
                rules: [("github-token".to_owned(), 2), (HiddenWords::NAMED.to_owned(), 1)].into(),
            }),
            effect_digest: String::new(),
            changes: Vec::new(),
            folders: Vec::new(),
            network: None,
            ..effect("e")
        };
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &[(&digest_of(&bytes), &bytes)]);
        let request = request(&subject, v1::ApprovalMode::Wait);
        let asked = world.executor.services().create_approval(request).await.unwrap().into_inner();
        let preview = world.get(&asked.name).await.preview.unwrap();
        assert_eq!((preview.hidden_values, preview.hidden_note.as_str()), (3, "github-token 2, named 1"));

        let call = v1::GetApprovalChangeRequest { name: asked.name.clone(), of_call: true, ..Default::default() };
        let reveal = v1::GetApprovalChangeRequest { reveal: true, ..call.clone() };
        let ann = world.client_for(&Principal::person("ann", [Role::Approver]));
        let refused = ann.people().get_approval_change(call).await;
        assert_eq!(refusal(refused), (Code::InvalidArgument, "INVALID_ARGUMENT".into()));
        let viewer = world.client_for(&Principal::person("viewer", [Role::Viewer, Role::Planner]));
        let refused = viewer.people().get_approval_change(reveal.clone()).await;
        assert_eq!(refusal(refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
        assert_eq!(world.get(&asked.name).await.reveals, []);

        // A change of the same index is noted as another thing.
        for _ in 0..2 {
            let shown = ann.people().get_approval_change(reveal.clone()).await.unwrap().into_inner();
            assert_eq!(shown.headline, format!("{}: curl {secret}\n  env: {{\"PIN\":\"12\"}}", subject.tool));
            assert_eq!((shown.working_directory, shown.change), (words.working_directory.clone(), None));
        }
        let kept = world.get(&asked.name).await;
        let told: Vec<_> =
            kept.reveals.iter().map(|one| (one.principal.as_str(), one.of_call, one.digest.clone())).collect();
        assert_eq!(told, [("person:ann", true, digest_of(&bytes))]);
        assert!(!format!("{kept:?}").contains(&secret), "{kept:?}");

        // Where the runner has hidden nothing, the gate may have: that is noted as well.
        let plain = world.ask(&Subject { hidden: None, ..effect("f") }).await;
        let reveal = v1::GetApprovalChangeRequest { name: plain.name.clone(), ..reveal };
        ann.people().get_approval_change(reveal).await.unwrap();
        let noted: Vec<_> =
            world.get(&plain.name).await.reveals.iter().map(|one| (one.of_call, one.digest.clone())).collect();
        assert_eq!(noted, [(true, effect("f").arguments_digest)]);
        assert_nowhere(&world.folder, &[secret]);
    });
}

/// B-18, B-29: of two changes that read alike each is shown with its own content, whichever comes first.
#[test]
fn changes_that_read_alike_have_each_its_content() {
    assert_attack_needs(Defect::ContentByShownPath, "change 0 is shown as `+harmless`", || {
        world("", async |world| {
            let names = ["payload", "harmless"].map(|content| (format!("keys/of-{content}"), format!("{content}\n")));
            let change = |(path, content): &(String, String)| Change {
                path: "keys/[REDACTED]".into(),
                path_digest: digest_of(path.as_bytes()),
                gravity: Gravity::Flagged,
                after: digest_of(content.as_bytes()),
                flags: vec![Change::HIDDEN_NAME.into()],
                ..effect("e").changes.remove(0)
            };
            let subject = Subject { changes: names.iter().map(change).collect(), ..effect("e") };
            let held = names.iter().flat_map(|(path, content)| [path, content]);
            let held: Vec<_> = held.map(|text| (digest_of(text.as_bytes()), text.as_bytes())).collect();
            let held: Vec<_> = held.iter().map(|(digest, text)| (digest.as_str(), *text)).collect();
            world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &held);
            let request = request(&subject, v1::ApprovalMode::Wait);
            let asked = world.executor.services().create_approval(request).await.unwrap().into_inner();
            for (index, content) in (0..).zip(["+payload", "+harmless"]) {
                let request = v1::GetApprovalChangeRequest { name: asked.name.clone(), index, ..Default::default() };
                let answer = world.person.people().get_approval_change(request).await.unwrap().into_inner();
                let unified = answer.change.unwrap().unified;
                let shown = unified.lines().last().unwrap_or_default();
                if shown != content {
                    return Err(format!("change {index} is shown as `{shown}`"));
                }
            }
            Ok(())
        })
    });
}

#[test]
fn creating_an_approval_is_idempotent() {
    world("", async |world| {
        let first = world.ask(&effect("e")).await;
        assert_eq!(world.ask(&effect("e")).await, first);
        assert_eq!(world.runner.asked.load(Ordering::SeqCst), 1);
        let (a, b) = (effect("a"), effect("a"));
        let (a, b) = tokio::join!(world.ask(&a), world.ask(&b));
        assert_eq!(a, b, "at the same time as well");
        let other = Subject { rule: "other".into(), ..effect("e") };
        assert_ne!(world.ask(&other).await.name, first.name, "another digest is another question");
    });
}

/// After a decision, creating the approval again returns the decided one.
#[test]
fn creating_a_decided_approval_again_returns_it() {
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        let decided = decide(&world.person, &asked, v1::Decision::Deny).await.unwrap();
        assert_eq!(world.ask(&effect("e")).await, decided);
        assert_eq!(decided.state(), State::Denied);
    });
}

/// B-03, B-05: whatever an executor sends, the gate creates approvals only for the subject that the runner has for that call.
#[test]
fn a_hostile_executor_cannot_substitute_the_subject() {
    world("", async |world| {
        let executor = world.executor.clone();
        let subject = effect("e");
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &[]);
        let honest = request(&subject, v1::ApprovalMode::Wait);

        let false_digest = gate_v1::CreateApprovalRequest { subject_digest: digest_of(b"harmless"), ..honest.clone() };
        assert_eq!(
            refusal(executor.services().create_approval(false_digest).await),
            (Code::FailedPrecondition, "SUBJECT_CHANGED".into())
        );
        let not_held = gate_v1::CreateApprovalRequest { call: call_of(&effect("other")), ..honest.clone() };
        assert_eq!(
            refusal(executor.services().create_approval(not_held).await),
            (Code::FailedPrecondition, "CALL_NOT_HELD".into())
        );
        // A runner that returns the subject of another call.
        let other = effect("other");
        world.runner.hold(&call_of(&other), &subject.canonical_bytes(), &[]);
        let wrong_call = gate_v1::CreateApprovalRequest { call: call_of(&other), ..honest };
        assert_eq!(
            refusal(executor.services().create_approval(wrong_call).await),
            (Code::FailedPrecondition, "SUBJECT_INVALID".into())
        );
        let none = world
            .person
            .people()
            .list_approvals(v1::ListApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(none.approvals, [], "no approval was created");
    });
}

/// B-03: a content that does not match its digest makes no approval.
#[test]
fn a_false_content_is_refused() {
    world("", async |world| {
        let subject = effect("e");
        let contents: [(&str, &[u8]); 1] = [(&digest_of(b"made\n"), b"something nicer\n")];
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &contents);
        let asked = world.executor.services().create_approval(request(&subject, v1::ApprovalMode::Wait)).await;
        assert_eq!(refusal(asked), (Code::FailedPrecondition, "CONTENT_MISMATCH".into()));
        let none = world
            .person
            .people()
            .list_approvals(v1::ListApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(none.approvals, []);
    });
}

/// B-18: every path can be listed, and every diff read to its last line, however many and large they are.
#[test]
fn all_changes_can_be_read_page_by_page() {
    world("", async |world| {
        let long: String = (0..30_000).map(|n| format!("line {n}\n")).collect();
        let change = |path: String, after: &[u8]| Change {
            path,
            path_digest: String::new(),
            kind: ChangeKind::Created,
            gravity: Gravity::Created,
            protection: String::new(),
            before: String::new(),
            after: digest_of(after),
            what: "file 0644".into(),
            flags: Vec::new(),
            folder: None,
        };
        let protected = change("z/.envrc".into(), b"export X=1\n");
        let mut changes =
            vec![Change { gravity: Gravity::Protected, protection: "direnv loads it".into(), ..protected }];
        changes.extend((0..500).map(|n| change(format!("a{n:03}"), b"x")));
        changes.push(change("bytes".into(), b"\xff\xfe"));
        changes.push(change("long".into(), long.as_bytes()));
        let subject = Subject { changes, ..effect("e") };
        let bodies: Vec<&[u8]> = vec![b"x", b"\xff\xfe", long.as_bytes(), b"export X=1\n"];
        let contents: Vec<_> = bodies.iter().map(|body| (digest_of(body), *body)).collect();
        let contents: Vec<_> = contents.iter().map(|(digest, body)| (digest.as_str(), *body)).collect();
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &contents);
        let asked = world.executor.services().create_approval(request(&subject, v1::ApprovalMode::Wait)).await.unwrap();
        let name = asked.into_inner().name;

        let person = world.person.clone();
        let (mut paths, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = v1::ListApprovalChangesRequest { name: name.clone(), page_size: 100, page_token };
            let page = person.people().list_approval_changes(request).await.unwrap().into_inner();
            assert_eq!(page.total, 503);
            paths.extend(page.changes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(
            (paths.len(), paths[0].path.as_str(), &paths[0].flags),
            (503, "z/.envrc", &vec!["protected".to_owned()])
        );

        assert!(paths.iter().zip(0..).all(|(change, index)| change.index == index), "each has its place");
        let index = |path: &str| paths.iter().find(|change| change.path == path).unwrap().index;
        let whole = async |index: i32, page_size: i32| {
            let (mut unified, mut page_token) = (String::new(), String::new());
            loop {
                let name = name.clone();
                let request = v1::GetApprovalChangeRequest { name, index, page_size, page_token, ..Default::default() };
                let page = world.person.people().get_approval_change(request).await?.into_inner();
                unified.push_str(&page.change.unwrap().unified);
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    return Ok::<_, tonic::Status>(unified);
                }
            }
        };
        let shown = whole(index("long"), 999).await.unwrap();
        assert_eq!(shown.lines().count(), 30_001);
        assert!(shown.ends_with("+line 29999\n"));
        assert!(whole(index("bytes"), 0).await.unwrap().contains("ff fe"));
        assert_eq!(whole(index("z/.envrc"), 0).await.unwrap(), "@@ -0,0 +1 @@\n+export X=1\n");
        assert_eq!(refusal(whole(503, 0).await), (Code::NotFound, "CHANGE_NOT_FOUND".into()));
        assert_eq!(whole(-1, 0).await.unwrap_err().code(), Code::InvalidArgument);
        let nobody =
            v1::ListApprovalChangesRequest { name: "namespaces/default/approvals/nobody".into(), ..Default::default() };
        assert_eq!(
            refusal(person.people().list_approval_changes(nobody).await),
            (Code::NotFound, "APPROVAL_NOT_FOUND".into())
        );
    });
}

/// S2-X-18: an approval in advance does not cover protected or flagged changes.
#[test]
fn the_policy_never_approves_what_is_protected_or_flagged() {
    // The runner judges: by the path as it is, of which the gate may know nothing.
    for (path, gravity) in
        [(".git/hooks/pre-commit", Gravity::Protected), ("[REDACTED]", Gravity::Protected), ("a", Gravity::Flagged)]
    {
        world("non_interactive_policy: auto\n", async |world| {
            let mut subject = effect("e");
            subject.changes[0].path = path.into();
            subject.changes[0].gravity = gravity;
            let decided = world.try_ask(&subject, v1::ApprovalMode::Auto).await.unwrap();
            assert_eq!((decided.state(), decided.decided_by.as_str()), (State::Denied, "policy"), "{path}");
            assert!(decided.decide_reason.contains(&format!("`{path}`")), "{}", decided.decide_reason);
            assert!(decided.decide_reason.contains("--approve prompt"), "{}", decided.decide_reason);
        });
    }
    world("non_interactive_policy: auto\nprotect: false\n", async |world| {
        let mut subject = effect("e");
        subject.changes[0].gravity = Gravity::Protected;
        let decided = world.try_ask(&subject, v1::ApprovalMode::Auto).await.unwrap();
        assert_eq!(decided.state(), State::Approved, "`protect: false` disables protection");
    });
}

#[test]
fn people_cannot_create_approvals() {
    world("", async |world| {
        let subject = effect("e");
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &[]);
        let asked = world.person.services().create_approval(request(&subject, v1::ApprovalMode::Wait)).await;
        assert_eq!(refusal(asked), (Code::PermissionDenied, "NOT_A_SERVICE".into()));
        assert_eq!(world.runner.asked.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn no_approval_is_created_while_the_runner_is_down_and_a_retry_succeeds() {
    world("", async |world| {
        let socket = world.folder.join("runner.sock");
        let hidden = world.folder.join("hidden.sock");
        std::fs::rename(&socket, &hidden).unwrap();
        let away = world.try_ask(&effect("e"), v1::ApprovalMode::Wait).await;
        assert_eq!(refusal(away), (Code::Unavailable, "RUNNER_UNAVAILABLE".into()));
        std::fs::rename(&hidden, &socket).unwrap();
        assert_eq!(world.ask(&effect("e")).await.state(), State::Pending);
    });
}

/// S2-X-18: in an execution without a person, the policy decides, and denies what it does not approve.
#[test]
fn without_a_person_the_policy_decides() {
    for (policy, state) in [("auto", State::Approved), ("skip", State::Skipped), ("fail", State::Denied)] {
        world(&format!("non_interactive_policy: {policy}\n"), async |world| {
            let decided = world.try_ask(&effect("e"), v1::ApprovalMode::Auto).await.unwrap();
            assert_eq!((decided.state(), decided.decided_by.as_str()), (state, "policy"));
            assert_eq!(decided.decide_reason, format!("non_interactive_policy: {policy}"));
            for mode in [v1::ApprovalMode::Wait, v1::ApprovalMode::Fail, v1::ApprovalMode::Unspecified] {
                let asked = world.try_ask(&effect(&format!("e{}", mode as i32)), mode).await.unwrap();
                assert_eq!(asked.state(), State::Pending, "{mode:?}");
            }
        });
    }
}

#[test]
fn a_field_that_is_wrong_is_named() {
    world("", async |world| {
        let good = request(&effect("e"), v1::ApprovalMode::Wait);
        for (field, bad) in [
            ("call", gate_v1::CreateApprovalRequest { call: "x".into(), ..good.clone() }),
            ("subject_digest", gate_v1::CreateApprovalRequest { subject_digest: "aa".into(), ..good.clone() }),
            (
                "subject_digest",
                gate_v1::CreateApprovalRequest { subject_digest: good.subject_digest.to_uppercase(), ..good.clone() },
            ),
            ("requested_by", gate_v1::CreateApprovalRequest { requested_by: "x".repeat(300), ..good.clone() }),
        ] {
            let status = world.executor.services().create_approval(bad).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().starts_with(&format!("{field}: ")), "{status}");
        }
        let person = world.person.clone();
        let name = "namespaces/default/approvals/nobody".to_owned();
        let request = v1::GetApprovalRequest { name, ..Default::default() };
        assert_eq!(refusal(person.people().get_approval(request).await), (Code::NotFound, "APPROVAL_NOT_FOUND".into()));
        for bad in ["x", "p", "o-", "qq", "ü"] {
            let request = v1::ListApprovalsRequest {
                parent: "namespaces/-".into(),
                page_token: bad.into(),
                ..Default::default()
            };
            let status = person.people().list_approvals(request).await.unwrap_err();
            assert!(status.message().starts_with("page_token: "), "{bad}: {status}");
        }
    });
}

fn reason(status: &tonic::Status) -> String {
    belay_service_kit::status::reason(status).unwrap_or_default()
}

/// Beyond its limits the gate rejects requests with a delay, and stores nothing of them; a decision frees a slot.
#[test]
fn open_approvals_and_watchers_are_limited() {
    let mut limits = GateLimits::default();
    (limits.approvals.value, limits.watchers.value) = (2, 1);
    world_with(limits, async |world| {
        let executor = world.executor.clone();
        let subjects: Vec<Subject> = ["a", "b", "c"].map(effect).into();
        for subject in &subjects {
            world.runner.hold(&call_of(subject), &subject.canonical_bytes(), &[(&digest_of(b"made\n"), b"made\n")]);
        }
        let ask = |subject: &Subject| request(subject, v1::ApprovalMode::Wait);
        let first = executor.services().create_approval(ask(&subjects[0])).await.unwrap().into_inner();
        executor.services().create_approval(ask(&subjects[1])).await.unwrap();
        let refused = executor.services().create_approval(ask(&subjects[2])).await.unwrap_err();
        let fact = |key| belay_service_kit::status::fact(&refused, key).unwrap();
        assert_eq!((refused.code(), reason(&refused)), (Code::ResourceExhausted, "LIMIT_REACHED".to_owned()));
        assert_eq!((fact("limit"), fact("allowed")), ("services.gate.approvals".into(), "2".into()));
        assert!(belay_service_kit::status::retry_after(&refused).is_some());
        let again = executor.services().create_approval(ask(&subjects[0])).await.unwrap().into_inner();
        assert_eq!(again.name, first.name, "an existing approval is returned");
        let at_once = request(&subjects[2], v1::ApprovalMode::Auto);
        assert_ne!(executor.services().create_approval(at_once).await.unwrap().into_inner().state(), State::Pending);

        let watch = v1::WatchApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() };
        let watching = world.person.people().watch_approvals(watch.clone()).await.unwrap();
        let refused = world.person.people().watch_approvals(watch).await.unwrap_err();
        assert_eq!(reason(&refused), "LIMIT_REACHED");
        drop(watching);
    });
}

/// Beyond the limit of concurrent previews the gate rejects requests with a delay, without a call to the runner; a finished preview frees
/// its slot.
#[test]
fn concurrent_previews_are_limited() {
    let mut limits = GateLimits::default();
    limits.previews.value = 1;
    world_with(limits, async |world| {
        let [first, second] = ["a", "b"].map(effect);
        for subject in [&first, &second] {
            world.runner.hold(&call_of(subject), &subject.canonical_bytes(), &[(&digest_of(b"made\n"), b"made\n")]);
        }
        let create = |subject: &Subject| {
            let (executor, request) = (world.executor.clone(), request(subject, v1::ApprovalMode::Wait));
            async move { executor.services().create_approval(request).await }
        };
        let responses = world.runner.responses.write().await;
        let rendering = tokio::spawn(create(&first));
        world.runner.arrived.notified().await;

        let refused = tokio::select! {
            answer = create(&second) => answer.unwrap_err(),
            () = world.runner.arrived.notified() => panic!("the gate rendered a second preview at the same time"),
        };
        let fact = |key| belay_service_kit::status::fact(&refused, key).unwrap();
        assert_eq!((refused.code(), reason(&refused)), (Code::ResourceExhausted, "LIMIT_REACHED".to_owned()));
        assert_eq!((fact("limit"), fact("allowed")), ("services.gate.previews".into(), "1".into()));
        assert!(belay_service_kit::status::retry_after(&refused).is_some());

        drop(responses);
        assert_eq!(rendering.await.unwrap().unwrap().into_inner().state(), State::Pending);
        assert_eq!(create(&second).await.unwrap().into_inner().state(), State::Pending);
    });
}
