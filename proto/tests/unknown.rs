//! Refusal of messages of the contract that have what this version does not know, with nothing of the others lost.

use std::collections::BTreeSet;

use belay_proto::{
    check::{Checked, Problem, Refused, Role, check, check_request},
    runner_v1, v1,
};
use proptest::prelude::*;
use prost::Message as _;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, EnumValueDescriptor, FieldDescriptor, MessageDescriptor, ReflectMessage as _, Value,
};

fn pool() -> DescriptorPool {
    DescriptorPool::decode(belay_proto::FILE_DESCRIPTOR_SET).unwrap()
}

fn plan() -> v1::Plan {
    let tool = v1::ToolStep { tool: "noop".into(), arguments: Some(v1::Payload::of_json("{}")), ..Default::default() };
    let kind = Some(v1::step_spec::Kind::Tool(tool));
    let step = |id: &str| v1::StepSpec { id: id.into(), kind: kind.clone(), ..Default::default() };
    v1::Plan { id: "plan".into(), steps: vec![step("a"), step("b")], ..Default::default() }
}

fn start() -> v1::StartExecutionRequest {
    let source = Some(v1::start_execution_request::Source::Plan(plan()));
    v1::StartExecutionRequest { source, approval_mode: v1::ApprovalMode::Skip.into(), ..Default::default() }
}

/// Where a message is in another: the numbers of the fields, and which of several.
type Place<'a> = &'a [(u32, usize)];

/// The message with bytes added to the one at this place.
fn with(message: &DynamicMessage, place: Place<'_>, added: &[u8]) -> Vec<u8> {
    let Some(((number, index), rest)) = place.split_first() else {
        return [&message.encode_to_vec(), added].concat();
    };
    let mut others = message.clone();
    others.clear_field_by_number(*number);
    let mut bytes = others.encode_to_vec();
    let field = message.get_field_by_number(*number).expect("the field is known");
    let values = match &*field {
        Value::List(values) => values.clone(),
        value => vec![value.clone()],
    };
    for (at, value) in values.iter().enumerate() {
        let inner = value.as_message().expect("it is a message");
        let inner = if at == *index { with(inner, rest, added) } else { inner.encode_to_vec() };
        prost::encoding::encode_key(*number, prost::encoding::WireType::LengthDelimited, &mut bytes);
        prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
        bytes.extend(inner);
    }
    bytes
}

fn dynamic(name: &str, bytes: &[u8]) -> DynamicMessage {
    DynamicMessage::decode(pool().get_message_by_name(name).unwrap(), bytes).unwrap()
}

/// A newer client's condition on a step was dropped, and the step ran.
#[test]
fn a_field_that_a_newer_client_set_is_refused_at_any_depth() {
    let message = dynamic("belay.v1.StartExecutionRequest", &start().encode_to_vec());
    // Field 500, a text.
    let condition = [0xa2, 0x1f, 5, b'f', b'a', b'l', b's', b'e'];
    let cases: [(Place<'_>, &str, &str); 4] = [
        (&[], "", "belay.v1.StartExecutionRequest"),
        (&[(3, 0)], "plan", "belay.v1.Plan"),
        (&[(3, 0), (3, 1)], "plan.steps[1]", "belay.v1.StepSpec"),
        (&[(3, 0), (3, 0), (10, 0)], "plan.steps[0].tool", "belay.v1.ToolStep"),
    ];
    for (place, path, of) in cases {
        let bytes = with(&message, place, &condition);
        assert!(v1::StartExecutionRequest::decode(&*bytes).is_ok(), "prost drops it");
        let refused = Refused { path: path.into(), message: of, problem: Problem::UnknownField(500) };
        assert_eq!(check::<v1::StartExecutionRequest>(&bytes), Err(refused));
    }
    assert_eq!(check::<v1::StartExecutionRequest>(&start().encode_to_vec()), Ok(()));
}

#[test]
fn unknown_values_and_unset_oneofs_are_refused() {
    let mut request = start();
    request.approval_mode = 99;
    let known = vec!["APPROVAL_MODE_WAIT", "APPROVAL_MODE_FAIL", "APPROVAL_MODE_SKIP", "APPROVAL_MODE_AUTO"];
    let problem = Problem::UnknownValue { field: "approval_mode", of: "belay.v1.ApprovalMode", number: 99, known };
    assert_eq!(check::<v1::StartExecutionRequest>(&request.encode_to_vec()).unwrap_err().problem, problem);

    let mut request = start();
    let Some(v1::start_execution_request::Source::Plan(plan)) = &mut request.source else { unreachable!() };
    plan.steps[1].kind = None;
    let refused = check::<v1::StartExecutionRequest>(&request.encode_to_vec()).unwrap_err();
    assert_eq!(
        (refused.path.as_str(), refused.problem),
        (
            "plan.steps[1]",
            Problem::NothingOf { oneof: "kind", members: vec!["tool", "wait", "plan", "calls", "agent"] }
        )
    );
    request.source = None;
    let refused = check::<v1::StartExecutionRequest>(&request.encode_to_vec()).unwrap_err();
    assert_eq!(
        (refused.path.as_str(), refused.problem),
        ("", Problem::NothingOf { oneof: "source", members: vec!["plan", "document"] })
    );
}

/// Requests of every method are checked, of one that reads as well: a filter that is dropped, or is read as another, shows what was not asked for.
#[test]
fn the_requests_of_every_method_are_checked() {
    let pool = pool();
    let methods: Vec<_> = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
    assert!(methods.len() >= 60, "all services are here");
    // Field 500, a text.
    let unknown = [0xa2, 0x1f, 5, b'f', b'a', b'l', b's', b'e'];
    for method in &methods {
        let refused = check_request(method.input().full_name(), &unknown).map(|checked| checked.unwrap_err().problem);
        assert_eq!(refused, Some(Problem::UnknownField(500)), "{}", method.full_name());
    }
    assert_eq!(check_request("belay.v1.Execution", &unknown), None);
    assert_eq!((v1::GetExecutionRequest::ROLE, v1::StartExecutionRequest::ROLE), (Role::Request, Role::Request));
    assert_eq!((v1::Execution::ROLE, runner_v1::CallToolResponse::ROLE), (Role::Other, Role::Other));
}

/// Every field of an enum within a message, with the fields that lead there; each type of message once.
fn enums(message: &MessageDescriptor, seen: &mut BTreeSet<String>) -> Vec<Vec<FieldDescriptor>> {
    if !seen.insert(message.full_name().to_owned()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for field in message.fields() {
        if field.kind().as_enum().is_some() {
            found.push(vec![field]);
        } else if let Some(inner) = field.kind().as_message() {
            let inner = enums(inner, seen);
            found.extend(inner.into_iter().map(|rest| [vec![field.clone()], rest].concat()));
        }
    }
    found
}

/// A request that has nothing but this value, in the last of these fields.
fn with_value(fields: &[FieldDescriptor], value: u64) -> Vec<u8> {
    let (first, rest) = fields.split_first().expect("there is a field");
    let mut bytes = Vec::new();
    if rest.is_empty() {
        prost::encoding::encode_key(first.number(), prost::encoding::WireType::Varint, &mut bytes);
        prost::encoding::encode_varint(value, &mut bytes);
    } else {
        prost::encoding::bytes::encode(first.number(), &with_value(rest, value), &mut bytes);
    }
    bytes
}

/// A filter with a value that the service does not know was read as none.
#[test]
fn no_method_takes_a_value_of_an_enum_that_is_not_known() {
    let pool = pool();
    let mut shown = BTreeSet::new();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        for fields in enums(&method.input(), &mut BTreeSet::new()) {
            let field = fields.last().expect("there is one");
            let (name, of) = (field.full_name(), field.kind().as_enum().unwrap().clone());
            let checked = check_request(method.input().full_name(), &with_value(&fields, 9_999)).unwrap();
            let refused = checked.expect_err(name);
            let Problem::UnknownValue { field: named, of: named_of, number, known } = &refused.problem else {
                panic!("{name}: {refused}")
            };
            assert_eq!((*named, *named_of, *number), (field.name(), of.full_name(), 9_999));
            let values: Vec<_> = of.values().filter(|value| value.number() != 0).collect();
            assert_eq!(*known, values.iter().map(EnumValueDescriptor::name).collect::<Vec<_>>(), "{name}");
            assert!(refused.field().ends_with(field.name()) && refused.to_string().contains("known are `"));
            for value in values {
                let bytes = with_value(&fields, u64::try_from(value.number()).unwrap());
                let checked = check_request(method.input().full_name(), &bytes).unwrap();
                assert!(!matches!(checked, Err(Refused { problem: Problem::UnknownValue { .. }, .. })), "{name}");
            }
            shown.insert(format!("{}.{}", method.name(), field.name()));
        }
    }
    for filter in ["ListArtifacts.kind", "ListAuditEntries.level", "ListAuditEntries.min_severity", "GetExecution.view"]
    {
        assert!(shown.contains(filter), "{filter} of {shown:?}");
    }
    for filter in ["GetStep.view", "WatchExecution.view", "ListApprovals.states", "DecideApproval.decision"] {
        assert!(shown.contains(filter), "{filter} of {shown:?}");
    }
}

/// A script whose variable is unset gave the key "" and had none: it started twice.
#[test]
fn an_optional_text_of_a_request_is_not_empty() {
    let mut found = BTreeSet::new();
    for method in pool().services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        for field in method.input().fields().filter(|field| field.kind().as_enum().is_none()) {
            let mut bytes = Vec::new();
            prost::encoding::encode_key(field.number(), prost::encoding::WireType::LengthDelimited, &mut bytes);
            bytes.push(0);
            let checked = check_request(method.input().full_name(), &bytes).unwrap();
            let is_empty = checked.is_err_and(|refused| matches!(refused.problem, Problem::Empty(_)));
            let is_text = field.kind() == protox::prost_reflect::Kind::String;
            assert_eq!(is_empty, is_text && field.supports_presence(), "{}", field.full_name());
            if is_empty {
                found.insert(format!("{}.{}", method.name(), field.name()));
            }
        }
    }
    // The fields by which a request is told from another, and those that narrow what it is about.
    for (suffix, count) in
        [(".request_id", 18), (".etag", 10), (".execution_id", 2), (".workspace", 2), (".execution", 2)]
    {
        assert_eq!(found.iter().filter(|name| name.ends_with(suffix)).count(), count, "{suffix} of {found:?}");
    }
}

/// Whether a decoded message has something that the contract does not: the check against another implementation of protobuf.
fn has_unknown(message: &DynamicMessage) -> bool {
    let unset = |message: &DynamicMessage| {
        message
            .descriptor()
            .oneofs()
            .any(|oneof| !oneof.is_synthetic() && !oneof.fields().any(|field| message.has_field(&field)))
    };
    message.unknown_fields().next().is_some()
        || unset(message)
        || message.fields().any(|(field, value)| is_unknown(&field.kind(), value))
}

fn is_unknown(kind: &protox::prost_reflect::Kind, value: &Value) -> bool {
    match value {
        Value::Message(message) => has_unknown(message),
        Value::List(values) => values.iter().any(|value| is_unknown(kind, value)),
        Value::Map(entries) => {
            entries.values().any(|value| matches!(value, Value::Message(message) if has_unknown(message)))
        }
        Value::EnumNumber(number) => kind.as_enum().is_some_and(|values| values.get_value(*number).is_none()),
        _ => false,
    }
}

fn event() -> v1::ExecutionEvent {
    let created = v1::ExecutionCreated {
        uid: "uid".into(),
        plan: Some(plan()),
        labels: [("team".into(), "blue".into())].into(),
        ..Default::default()
    };
    let time = Some(belay_proto::timestamp(1_700_000_000_123_456));
    let kind = Some(v1::execution_event::Kind::ExecutionCreated(Box::new(created)));
    v1::ExecutionEvent { sequence: 1, record_time: time, kind, ..Default::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever passes loses nothing when it is decoded; and nothing makes the check panic.
    #[test]
    fn what_passes_is_known_to_another_implementation(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..4),
        which in 0..2_usize,
    ) {
        let (mut bytes, name) = match which {
            0 => (start().encode_to_vec(), "belay.v1.StartExecutionRequest"),
            _ => (event().encode_to_vec(), "belay.v1.ExecutionEvent"),
        };
        let untouched = edits.is_empty();
        for (at, byte, edit) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes[at] ^= 1 << (byte & 7),
            }
        }
        let checked = match which {
            0 => check::<v1::StartExecutionRequest>(&bytes),
            _ => check::<v1::ExecutionEvent>(&bytes),
        };
        if untouched {
            prop_assert_eq!(&checked, &Ok(()));
        }
        let descriptor: MessageDescriptor = POOL.with(|pool| pool.get_message_by_name(name).unwrap());
        match (checked, DynamicMessage::decode(descriptor, &*bytes)) {
            (Ok(()), Ok(message)) => prop_assert!(!has_unknown(&message), "{message:?}"),
            // Only prost looks at texts, which have to be UTF-8.
            (Ok(()), Err(error)) => prop_assert!(error.to_string().contains("UTF-8"), "{error}"),
            (Err(Refused { problem: Problem::Malformed(what), .. }), Ok(message)) => {
                // Both others read a map's entry whatever wire type its tag has.
                let is_stricter = ["wire type", "nested", "another type"].iter().any(|known| what.contains(known));
                prop_assert!(has_unknown(&message) || is_stricter, "{what}: {message:?}");
            }
            (Err(_), _) => {}
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if check::<v1::ExecutionEvent>(&bytes).is_ok() {
            let decoded = v1::ExecutionEvent::decode(&*bytes);
            prop_assert!(decoded.is_ok() || decoded.is_err_and(|error| error.to_string().contains("UTF-8")));
        }
    }
}

thread_local! {
    static POOL: DescriptorPool = pool();
}

/// Fields that only services need are in nothing that a client sends or gets. `Tool.recovery` is what a plan's author is told about a tool.
#[test]
fn what_only_services_need_is_not_in_what_clients_see() {
    let pool = pool();
    let (mut to_visit, mut seen) = (Vec::new(), BTreeSet::new());
    for service in pool.services().filter(|service| service.full_name().starts_with("belay.v1.")) {
        to_visit.extend(service.methods().flat_map(|method| [method.input(), method.output()]));
    }
    while let Some(message) = to_visit.pop() {
        if !seen.insert(message.full_name().to_owned()) {
            continue;
        }
        for field in message.fields() {
            let is_for_services = matches!(field.name(), "shard" | "fence" | "fence_token" | "recovery");
            assert!(!is_for_services || field.full_name() == "belay.v1.Tool.recovery", "{}", field.full_name());
            to_visit.extend(field.kind().as_message().cloned());
        }
    }
    assert!(seen.contains("belay.v1.ToolCallRequested") && seen.contains("belay.v1.ToolCall"));
    let internal: Vec<_> =
        seen.iter().filter(|name| !name.starts_with("belay.v1.") && name.starts_with("belay.")).collect();
    assert_eq!(internal, [""; 0], "only services use the other packages");
}
