//! Requests of clients that are newer than the services.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use belay_e2e::{
    Client, Services,
    client::{channel, name},
};
use belay_proto::{
    contract::{self, REVISION},
    runner_v1,
    v1::{self, start_execution_request::Source, step_spec},
};
use prost::{Message as _, bytes::BufMut as _, encoding};
use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use tonic::{
    Code, Request, Response, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};
use tonic_types::StatusExt as _;

/// Sends bytes as they are, and drops what is answered.
#[derive(Default)]
pub(crate) struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        use prost::bytes::Buf as _;
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
}

/// Sends a request to a method as a client of this revision.
async fn send(socket: &Path, method: &str, bytes: Vec<u8>, revision: u32) -> Result<Response<()>, Status> {
    let mut client = tonic::client::Grpc::new(channel(socket));
    client.ready().await.unwrap();
    let mut request = Request::new(bytes);
    request.metadata_mut().insert(contract::NAME, revision.to_string().parse().unwrap());
    client.unary(request, PathAndQuery::try_from(method.to_owned()).unwrap(), Bytes).await
}

/// An encoded message with a text in field 500, which no message has.
fn newer(message: &impl prost::Message) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    encoding::string::encode(500, &"false".to_owned(), &mut bytes);
    bytes
}

/// An encoded message in a field of another.
fn inside(number: u32, message: &[u8], outer: &impl prost::Message) -> Vec<u8> {
    let mut bytes = outer.encode_to_vec();
    encoding::bytes::encode(number, &message.to_vec(), &mut bytes);
    bytes
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().expect("it has a reason").reason
}

/// B-21: a condition that this version does not know was dropped, and the step ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_more_than_the_service_knows_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());

    let tool = v1::ToolStep { tool: "noop".into(), arguments: Some(v1::Payload::of_json("{}")), ..Default::default() };
    let step = v1::StepSpec { id: "a".into(), kind: Some(step_spec::Kind::Tool(tool)), ..Default::default() };
    let plan = inside(3, &newer(&step), &v1::Plan { id: "p".into(), ..Default::default() });
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        execution_id: "newer".into(),
        ..Default::default()
    };
    let start = inside(3, &plan, &request);
    let prost_reads = v1::StartExecutionRequest::decode(&*start).unwrap();
    assert!(matches!(prost_reads.source, Some(Source::Plan(plan)) if plan.steps[0].kind.is_some()), "and drops it");

    for method in ["StartExecution", "ValidatePlan"] {
        let plan = if method == "StartExecution" {
            start.clone()
        } else {
            inside(2, &plan, &v1::ValidatePlanRequest::default())
        };
        let method = format!("/belay.v1.ExecutorService/{method}");
        let status = send(&services.socket(), &method, plan, REVISION + 1).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "UNKNOWN_FIELD"), "{status:?}");
        assert!(
            status.message().contains("`plan.steps[0]`: field 500 of belay.v1.StepSpec is not known"),
            "{status:?}"
        );
        let revisions = format!("revision {} and the server's {REVISION}: upgrade the server", REVISION + 1);
        assert!(status.message().contains(&revisions), "{status:?}");
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "plan.steps[0]");
        assert_eq!(details.error_info().unwrap().metadata["field_number"], "500");
        assert_eq!(status.metadata().get(contract::NAME).unwrap(), contract::TEXT, "the service says its own revision");
    }
    let all = v1::ListExecutionsRequest { parent: "namespaces/default".into(), ..Default::default() };
    let list = client.raw().list_executions(all).await.unwrap().into_inner();
    assert_eq!(list.executions, [], "nothing was started");

    // The other services.
    let call = newer(&runner_v1::CallToolRequest { name: "c".into(), ..Default::default() });
    let status =
        send(&services.runner(), "/belay.runner.v1.ToolRunnerService/CallTool", call, REVISION).await.unwrap_err();
    assert_eq!(reason(&status), "UNKNOWN_FIELD");
    assert!(status.message().contains("generate the client from the server's contract"), "{status:?}");
    let decide = v1::DecideApprovalRequest { name: "a".into(), decision: 99, ..Default::default() }.encode_to_vec();
    let method = "/belay.v1.ApprovalService/DecideApproval";
    let status = send(&services.people(), method, decide, REVISION + 1).await.unwrap_err();
    assert_eq!(reason(&status), "UNKNOWN_FIELD");
    assert!(status.message().contains("`decision` has the value 99"), "{status:?}");
    let cut = vec![0x0a, 200, 1];
    let status = send(&services.people(), method, cut, REVISION).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "MESSAGE_MALFORMED"), "{status:?}");

    // What only reads would show what was not asked for.
    client.start("known", "{id: p, steps: [{id: a, tool: noop}]}").await;
    let get = v1::GetExecutionRequest { name: name("known"), ..Default::default() };
    let method = "/belay.v1.ExecutorService/GetExecution";
    let status = send(&services.socket(), method, newer(&get), REVISION + 1).await.unwrap_err();
    assert_eq!(reason(&status), "UNKNOWN_FIELD");
    let answer = send(&services.socket(), method, get.encode_to_vec(), REVISION + 1).await.unwrap();
    assert_eq!(answer.metadata().get(contract::NAME).unwrap(), contract::TEXT);
}

/// The methods of all services, each with the socket of its service.
pub(crate) fn methods(services: &Services) -> Vec<(MethodDescriptor, PathBuf)> {
    let pool = DescriptorPool::decode(belay_proto::FILE_DESCRIPTOR_SET).unwrap();
    let of = |service: &str| match service {
        "ExecutorService" | "ScheduleService" | "ModelService" => services.socket(),
        "ApprovalService" | "PolicyService" => services.people(),
        "ApprovalGateService" => services.gate(),
        "ToolRunnerService" => services.runner(),
        other => panic!("where is {other} served?"),
    };
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.map(|method| (method.clone(), of(method.parent_service().name()))).collect()
}

/// Every field of a message for which `is_wanted`, with the fields that lead there; each type of message once.
pub(crate) fn fields_of(
    message: &MessageDescriptor,
    is_wanted: fn(&Kind) -> bool,
    seen: &mut BTreeSet<String>,
) -> Vec<Vec<FieldDescriptor>> {
    // The entries of a map have a type of their own.
    if !seen.insert(message.full_name().to_owned()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for field in message.fields() {
        if is_wanted(&field.kind()) {
            found.push(vec![field]);
        } else if let Some(inner) = field.kind().as_message() {
            let inner = fields_of(inner, is_wanted, seen);
            found.extend(inner.into_iter().map(|rest| [vec![field.clone()], rest].concat()));
        }
    }
    found
}

/// A message that has only this value, in the last of these fields.
pub(crate) fn only(fields: &[FieldDescriptor], encode: &dyn Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let (first, rest) = fields.split_first().expect("there is a field");
    if rest.is_empty() { encode(first.number()) } else { inside(first.number(), &only(rest, encode), &()) }
}

/// The names of fields as a request has them.
pub(crate) fn path(fields: &[FieldDescriptor]) -> String {
    fields.iter().map(FieldDescriptor::name).collect::<Vec<_>>().join(".")
}

/// Sends a request and returns what is answered first.
pub(crate) async fn first(channel: Channel, method: &MethodDescriptor, bytes: Vec<u8>) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut answers =
        client.server_streaming(Request::new(bytes), PathAndQuery::try_from(path).unwrap(), Bytes).await?.into_inner();
    answers.message().await.map(drop)
}

/// A filter with a value that the service does not know was read as none: `ListArtifacts` with the kind 9 listed all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_method_takes_a_value_of_an_enum_that_the_service_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let mut shown = BTreeSet::new();
    // What a session carries is refused piece by piece: services/tool-runner/tests/runner/session.rs.
    for (method, socket) in methods(&services).into_iter().filter(|(method, _)| !method.is_client_streaming()) {
        let channel = channel(&socket);
        for fields in fields_of(&method.input(), |kind| kind.as_enum().is_some(), &mut BTreeSet::new()) {
            let bytes = only(&fields, &|number| {
                let mut bytes = Vec::new();
                encoding::int32::encode(number, &77, &mut bytes);
                bytes
            });
            let place = format!("{}.{}", method.name(), path(&fields));
            let status = first(channel.clone(), &method, bytes).await.expect_err(&place);
            assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "UNKNOWN_FIELD"), "{place}");
            let details = status.get_error_details();
            let violation = &details.bad_request().expect("it names the field").field_violations[0];
            assert!(violation.field.ends_with(fields.last().unwrap().name()), "{place}: {violation:?}");
            let values = fields.last().unwrap().kind().as_enum().unwrap().clone();
            for value in values.values().filter(|value| value.number() != 0) {
                assert!(violation.description.contains(&format!("`{}`", value.name())), "{place}: {violation:?}");
            }
            assert!(violation.description.contains("has the value 77"), "{place}: {violation:?}");
            shown.insert(place);
        }
    }
    for filter in ["ListArtifacts.kind", "ListAuditEntries.level", "ListApprovals.states", "GetExecution.view"] {
        assert!(shown.contains(filter), "{filter} of {shown:?}");
    }
}
