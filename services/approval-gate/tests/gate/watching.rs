//! Watches and lists.

use std::{collections::HashMap, pin::Pin, time::Duration};

use belay_proto::{
    gate_v1,
    v1::{self, Approval, Decision, approval::State, watch_approvals_response::Content, watch_reset::Reason},
};
use belay_service_kit::cursor::{Cursor, Source, WatchIdentity};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tonic::{Code, Status};

use crate::support::*;

/// A watch of approvals, or of decisions.
struct Watcher(Pin<Box<dyn Stream<Item = Result<Content, Status>> + Send>>);

impl Watcher {
    async fn begin(client: &Client, request: v1::WatchApprovalsRequest) -> Self {
        let messages = client.people().watch_approvals(request).await.unwrap().into_inner();
        Self(Box::pin(messages.map_ok(|message| message.content.unwrap())))
    }

    async fn of_decisions(client: &Client) -> Self {
        use gate_v1::watch_decisions_response::Content as Decided;
        let messages = client.services().watch_decisions(gate_v1::WatchDecisionsRequest::default()).await;
        let content = |message: gate_v1::WatchDecisionsResponse| match message.content.unwrap() {
            Decided::Approval(approval) => Content::Approval(approval),
            Decided::Heartbeat(_) => Content::Heartbeat(v1::WatchHeartbeat::default()),
        };
        Self(Box::pin(messages.unwrap().into_inner().map_ok(content)))
    }

    async fn next(&mut self) -> Content {
        self.0.next().await.expect("a watch does not end").unwrap()
    }

    /// The approvals before it is said that all there are have come, and before the next heartbeat.
    async fn until_quiet(&mut self) -> Vec<Approval> {
        let mut seen = Vec::new();
        while let Content::Approval(approval) = self.next().await {
            seen.push(approval);
        }
        seen
    }

    async fn change(&mut self) -> Approval {
        loop {
            if let Content::Approval(approval) = self.next().await {
                return approval;
            }
        }
    }
}

fn everywhere() -> v1::ListApprovalsRequest {
    v1::ListApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() }
}

fn all() -> v1::WatchApprovalsRequest {
    v1::WatchApprovalsRequest { parent: "namespaces/default".into(), ..Default::default() }
}

/// S2-FR-052: a watcher gets each pending approval and each change of it, once and in order, wherever the watch began.
#[test]
fn a_watch_has_no_gap_and_nothing_twice() {
    world("", async |world| {
        const QUESTIONS: usize = 150;
        let work = async {
            for n in 0..QUESTIONS {
                let asked = world.ask(&effect(&format!("e{n}"))).await;
                decide(&world.person, &asked, Decision::Approve).await.unwrap();
            }
        };
        let watch = async {
            let mut ends = Vec::new();
            for begins_after in [0, 40, 120, 200] {
                let mut ahead = Watcher::begin(&world.person, all()).await;
                for _ in 0..begins_after {
                    ahead.change().await;
                }
                let mut watcher = Watcher::begin(&world.person, all()).await;
                let begun = watcher.until_quiet().await;
                assert!(begun.is_sorted_by(|a, b| a.revision < b.revision));
                ends.push(tokio::spawn(async move {
                    let mut last: HashMap<String, Approval> = HashMap::new();
                    let mut revision = begun.last().map_or(0, |last| last.revision);
                    last.extend(begun.into_iter().map(|approval| (approval.name.clone(), approval)));
                    while last.len() < QUESTIONS || last.values().any(|approval| approval.state() == State::Pending) {
                        let change = watcher.change().await;
                        assert_eq!(change.revision, revision + 1, "the next change and no other");
                        revision = change.revision;
                        last.insert(change.name.clone(), change);
                    }
                    last.len()
                }));
            }
            for end in ends {
                assert_eq!(end.await.unwrap(), QUESTIONS);
            }
        };
        tokio::join!(work, watch);
    });
}

#[test]
fn an_idle_watch_sends_heartbeats() {
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        let interval = belay_proto::duration(Duration::from_millis(100));
        let mut watcher =
            Watcher::begin(&world.person, v1::WatchApprovalsRequest { heartbeat_interval: Some(interval), ..all() })
                .await;
        assert_eq!(watcher.until_quiet().await, std::slice::from_ref(&asked));
        for _ in 0..2 {
            let Content::Heartbeat(heartbeat) = watcher.next().await else { panic!("nothing has happened") };
            assert!(heartbeat.server_time.is_some());
        }
        let odd =
            v1::WatchApprovalsRequest { heartbeat_interval: Some(belay_proto::duration(Duration::ZERO)), ..all() };
        assert_eq!(world.person.people().watch_approvals(odd).await.unwrap_err().code(), Code::InvalidArgument);
        world.trigger.pull();
        let ended = loop {
            match watcher.0.next().await.expect("the gate ends it with an error") {
                Ok(_) => {}
                Err(status) => break status,
            }
        };
        assert_eq!(refusal(Err::<(), _>(ended)), (Code::Unavailable, "STOPPING".into()));
    });
}

/// An executor gets each decision until it has acknowledged it, and not after.
#[test]
fn a_decision_is_sent_until_it_is_acknowledged() {
    world("approvals:\n  expire_after: 1h\n", async |world| {
        let (a, b, c) = (world.ask(&effect("a")).await, world.ask(&effect("b")).await, world.ask(&effect("c")).await);
        let mut watcher = Watcher::of_decisions(&world.executor).await;
        assert_eq!(watcher.until_quiet().await, [], "nothing is decided yet");
        let decided = decide(&world.person, &a, Decision::Skip).await.unwrap();
        assert_eq!(watcher.change().await, decided);

        let say = async |request| world.executor.services().acknowledge_approvals(request).await.unwrap();
        let delivered = vec![a.name.clone(), b.name.clone(), "namespaces/default/approvals/unknown".into()];
        say(gate_v1::AcknowledgeApprovalsRequest { delivered, ..Default::default() }).await;
        decide(&world.person, &b, Decision::Approve).await.unwrap();
        assert_eq!(watcher.change().await.name, b.name, "a pending approval was not delivered yet");
        let mut again = Watcher::of_decisions(&world.executor).await;
        let names = |seen: Vec<Approval>| seen.into_iter().map(|approval| approval.name).collect::<Vec<_>>();
        assert_eq!(names(again.until_quiet().await), std::slice::from_ref(&b.name));

        world.clock.advance(3600);
        assert_eq!(world.get(&c.name).await.state(), State::Expired);
        assert_eq!(again.change().await.name, c.name, "expiry is a decision too");
        say(gate_v1::AcknowledgeApprovalsRequest { consumed: vec![b.name.clone()], ..Default::default() }).await;
        let mut last = Watcher::of_decisions(&world.executor).await;
        assert_eq!(names(last.until_quiet().await), [c.name]);

        let request = gate_v1::AcknowledgeApprovalsRequest { delivered: vec![a.name], ..Default::default() };
        let refused = world.person.services().acknowledge_approvals(request).await;
        assert_eq!(refusal(refused), (Code::PermissionDenied, "NOT_A_SERVICE".into()));
    });
}

/// Everything that a watch sends until what there is is listed, and its cursor then.
async fn begun(world: &World, cursor: &str) -> (Vec<Content>, String) {
    let request = v1::WatchApprovalsRequest { cursor: cursor.to_owned(), ..all() };
    let mut messages = world.person.people().watch_approvals(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    loop {
        let message = messages.message().await.unwrap().unwrap();
        match message.content.unwrap() {
            Content::Listed(_) => return (seen, message.cursor),
            content => seen.push(content),
        }
    }
}

/// A watcher that reconnects gets what changed meanwhile and nothing else, also from a gate that was started again.
#[test]
fn a_watch_resumes_at_its_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let watched = WatchIdentity::approvals("namespaces/default", "");
    let (b, decided, cursor) = life(folder.path(), "", async |world| {
        let (a, b) = (world.ask(&effect("a")).await, world.ask(&effect("b")).await);
        let (seen, cursor) = begun(&world, "").await;
        assert_eq!(seen, [Content::Approval(a.clone()), Content::Approval(b.clone())]);
        assert_eq!(begun(&world, &cursor).await, (vec![], cursor.clone()), "it can be handed back");
        let mut messages = world.person.people().watch_approvals(all()).await.unwrap().into_inner();
        let first = messages.message().await.unwrap().unwrap();
        assert_eq!(first.content, Some(Content::Approval(a.clone())));
        let decided = decide(&world.person, &a, Decision::Deny).await.unwrap();
        let after_a = begun(&world, &first.cursor).await.0;
        assert_eq!(after_a, [Content::Approval(b.clone()), Content::Approval(decided.clone())]);
        assert_eq!(begun(&world, &cursor).await.0, [Content::Approval(decided.clone())]);
        (b, decided, cursor)
    });
    life(folder.path(), "", async |world| {
        let (changed, later) = begun(&world, &cursor).await;
        assert_eq!(changed, [Content::Approval(decided.clone())]);
        let later: Cursor<1> = watched.read(&later).unwrap().unwrap();
        assert_eq!(later.place, [decided.revision]);
        let reset = Content::Reset(v1::WatchReset { reason: Reason::Lost.into() });
        let everything = [reset, Content::Approval(b.clone()), Content::Approval(decided.clone())];
        let another = Source::new(&["another"]);
        for foreign in [
            Cursor { place: [decided.revision + 1], ..later },
            Cursor { place: [-1], ..later },
            Cursor { source: another, ..later },
            Cursor { source: another, place: [0] },
        ] {
            let (seen, cursor) = begun(&world, &watched.write(&foreign)).await;
            assert_eq!((seen.as_slice(), cursor), (&everything[..], watched.write(&later)), "{foreign:?}");
        }
        let of_one = WatchIdentity::approvals("namespaces/default", &b.execution).write(&later);
        for odd in ["17", &of_one] {
            let request = v1::WatchApprovalsRequest { cursor: odd.to_owned(), ..all() };
            let status = world.person.people().watch_approvals(request).await.unwrap_err();
            assert!(status.message().starts_with("cursor: is not of this watch: use "), "{status}");
        }
    });
}

#[test]
fn a_list_and_a_watch_name_their_namespace() {
    world("", async |world| {
        let watch = world.person.people().watch_approvals(v1::WatchApprovalsRequest::default()).await;
        let list = world.person.people().list_approvals(v1::ListApprovalsRequest::default()).await;
        let pending = gate_v1::ListPendingApprovalsRequest::default();
        let pending = world.executor.services().list_pending_approvals(pending).await;
        for status in [watch.map(drop).unwrap_err(), list.map(drop).unwrap_err(), pending.map(drop).unwrap_err()] {
            let expected = "parent: is required: write namespaces/NAMESPACE, or namespaces/- for all";
            assert_eq!((status.code(), status.message()), (Code::InvalidArgument, expected));
        }
    });
}

#[test]
fn a_watch_can_be_about_one_execution_or_all_namespaces() {
    world("", async |world| {
        let other = belay_grant::Subject { execution: "namespaces/other/executions/e".into(), ..effect("e") };
        let (a, b, c) = (world.ask(&effect("a")).await, world.ask(&effect("b")).await, world.ask(&other).await);
        let names = async |request| {
            let mut watcher = Watcher::begin(&world.person, request).await;
            let begun = watcher.until_quiet().await;
            (begun.into_iter().map(|approval| approval.name).collect::<Vec<_>>(), watcher)
        };
        let (seen, mut one) = names(v1::WatchApprovalsRequest { execution: b.execution.clone(), ..all() }).await;
        assert_eq!(seen, std::slice::from_ref(&b.name));
        assert_eq!(names(all()).await.0, [a.name.clone(), b.name.clone()]);
        let everything = v1::WatchApprovalsRequest { parent: "namespaces/-".into(), ..all() };
        assert_eq!(names(everything).await.0, [a.name.clone(), b.name.clone(), c.name]);
        decide(&world.person, &a, Decision::Deny).await.unwrap();
        let decided = decide(&world.person, &b, Decision::Deny).await.unwrap();
        assert_eq!(one.change().await, decided, "the change of the other execution is not for this watcher");
    });
}

#[test]
fn a_list_begins_with_the_oldest_pending_approval() {
    world("", async |world| {
        let mut asked = Vec::new();
        for n in 0..5 {
            asked.push(world.ask(&effect(&format!("e{n}"))).await);
        }
        for n in [1, 3] {
            decide(&world.person, &asked[n], Decision::Deny).await.unwrap();
        }
        let expected: Vec<String> = [0, 2, 4, 3, 1].map(|n: usize| asked[n].name.clone()).into();
        let list = async |request| {
            let mut names = Vec::new();
            let mut request: v1::ListApprovalsRequest = request;
            loop {
                let page = world.person.people().list_approvals(request.clone()).await.unwrap().into_inner();
                names.extend(page.approvals.into_iter().map(|approval| approval.name));
                request.page_token = page.next_page_token;
                if request.page_token.is_empty() {
                    return names;
                }
            }
        };
        for page_size in [0, 1, 2, 3, 5, 6] {
            assert_eq!(list(v1::ListApprovalsRequest { page_size, ..everywhere() }).await, expected, "{page_size}");
        }
        let states = vec![State::Denied.into()];
        assert_eq!(list(v1::ListApprovalsRequest { states, ..everywhere() }).await, expected[3..]);
        let execution = asked[2].execution.clone();
        assert_eq!(list(v1::ListApprovalsRequest { execution, ..everywhere() }).await, expected[1..2]);
        let id_prefix = expected[0].rsplit('/').next().unwrap()[..10].to_owned();
        assert_eq!(list(v1::ListApprovalsRequest { id_prefix, ..everywhere() }).await, expected[..1]);
        let parent = "namespaces/other".into();
        assert_eq!(list(v1::ListApprovalsRequest { parent, ..Default::default() }).await, [""; 0]);
    });
}
