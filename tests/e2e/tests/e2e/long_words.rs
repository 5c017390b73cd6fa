//! Requests whose refusals would repeat words of any length.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use belay_e2e::{Client, Services};
use belay_proto::v1;
use prost::{Message as _, encoding};
use protox::prost_reflect::{DynamicMessage, Kind, MethodDescriptor, Value};
use tokio::{net::UnixStream, time::timeout};
use tonic::transport::{Endpoint, Uri};
use tonic_types::StatusExt as _;

use crate::contract::{fields_of, first, methods, only, path};

/// The fields that a request has anyway, so that the service looks at its other fields too.
fn usual(method: &MethodDescriptor) -> Vec<u8> {
    let mut request = DynamicMessage::new(method.input());
    let execution = "namespaces/default/executions/known";
    let name = if method.name().ends_with("Step") { format!("{execution}/steps/a") } else { execution.to_owned() };
    let parent = match method.name() {
        "ListSteps" | "ListToolCalls" | "ListArtifacts" | "ListAuditEntries" => execution,
        _ => "namespaces/default",
    };
    for (field, value) in [("name", name.as_str()), ("parent", parent)] {
        if method.input().get_field_by_name(field).is_some() {
            request.set_field_by_name(field, Value::String(value.into()));
        }
    }
    if method.input().get_field_by_name("document").is_some() {
        let text = "{id: p, steps: [{id: a, tool: noop}]}".into();
        let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text };
        let field = method.input().get_field_by_name("document").unwrap();
        let mut dynamic = DynamicMessage::new(field.kind().as_message().unwrap().clone());
        dynamic.merge(&*document.encode_to_vec()).unwrap();
        request.set_field(&field, Value::Message(dynamic));
    }
    request.encode_to_vec()
}

/// A refusal that repeated a long word was larger than clients take in headers, and they closed the connection with all that it carried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_word_in_any_field_is_answered_and_the_connection_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    Client::new(&services.socket()).start("known", "{id: p, steps: [{id: a, tool: noop}]}").await;
    let words = ["x".repeat(1 << 20), "\u{436}".repeat(1 << 19)];
    let connected = Arc::new(AtomicUsize::new(0));
    let mut channels = BTreeMap::new();
    for (method, socket) in methods(&services).into_iter().filter(|(method, _)| !method.is_client_streaming()) {
        let channel = channels.entry(socket.clone()).or_insert_with(|| {
            let connected = Arc::clone(&connected);
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                connected.fetch_add(1, Ordering::Relaxed);
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
            }))
        });
        let is_text = |kind: &Kind| matches!(kind, Kind::String | Kind::Bytes);
        for fields in fields_of(&method.input(), is_text, &mut BTreeSet::new()) {
            for word in &words {
                let word = only(&fields, &|number| {
                    let mut bytes = Vec::new();
                    encoding::string::encode(number, word, &mut bytes);
                    bytes
                });
                let bytes = [usual(&method), word].concat();
                let place = format!("{}.{}", method.name(), path(&fields));
                // A watch that is accepted may have nothing to say.
                let answered = timeout(Duration::from_secs(5), first(channel.clone(), &method, bytes)).await;
                let Ok(Err(status)) = answered else { continue };
                assert!(status.get_details_error_info().is_some(), "{place}: {:.300}", format!("{status:?}"));
            }
        }
    }
    assert_eq!(connected.load(Ordering::Relaxed), channels.len(), "no connection was lost");
}
