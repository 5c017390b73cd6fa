//! Annotations of the contract's fields and resources, for readers and for generated clients.

use std::collections::{BTreeMap, BTreeSet};

use protox::{
    Compiler,
    prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, ReflectMessage as _, Value},
};

const FILES: [&str; 4] = [
    "belay/v1/executor_service.proto",
    "belay/v1/approval_service.proto",
    "belay/runner/v1/tool_runner_service.proto",
    "belay/gate/v1/approval_gate_service.proto",
];

fn contract() -> DescriptorPool {
    let mut compiler = Compiler::new([env!("CARGO_MANIFEST_DIR")]).unwrap();
    compiler.include_imports(true).open_files(FILES).unwrap();
    compiler.descriptor_pool()
}

fn option(options: &DynamicMessage, name: &str) -> Option<Value> {
    let extension = options.descriptor().parent_pool().get_extension_by_name(name).expect("it is imported");
    options.has_extension(&extension).then(|| options.get_extension(&extension).into_owned())
}

/// The text of a field of an option that is a message.
fn text(option: &Value, field: &str) -> String {
    let value = option.as_message().and_then(|message| message.get_field_by_name(field));
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn is(field: &FieldDescriptor, behavior: i32) -> bool {
    let found = option(&field.options(), "google.api.field_behavior");
    found.is_some_and(|found| found.as_list().unwrap().iter().any(|one| one.as_enum_number() == Some(behavior)))
}

const REQUIRED: i32 = 2;
const IDENTIFIER: i32 = 8;

#[test]
fn a_request_says_which_resource_it_is_about() {
    let pool = contract();
    let mut problems = Vec::new();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        for field in method.input().fields() {
            let reference = option(&field.options(), "google.api.resource_reference");
            let has = |which: &str| reference.as_ref().is_some_and(|reference| !text(reference, which).is_empty());
            let fits = match field.name() {
                "name" | "names" => has("type") && is(&field, REQUIRED),
                "parent" => has("child_type") && is(&field, REQUIRED),
                "execution" | "approval" | "call" => has("type"),
                _ => true,
            };
            if !fits {
                problems.push(field.full_name().to_owned());
            }
        }
    }
    assert!(
        problems.is_empty(),
        "these lack `google.api.field_behavior` or `google.api.resource_reference`: {problems:?}"
    );
}

#[test]
fn a_reference_leads_to_a_resource_and_its_comment_has_the_pattern() {
    let pool = contract();
    let mut resources = BTreeMap::new();
    let mut references = BTreeSet::new();
    for message in pool.all_messages().filter(|message| message.full_name().starts_with("belay.")) {
        if let Some(resource) = option(&message.options(), "google.api.resource") {
            let name = message.get_field_by_name("name").expect("a resource has a name");
            assert!(is(&name, IDENTIFIER), "{}", name.full_name());
            let patterns = resource.as_message().unwrap().get_field_by_name("pattern").unwrap().into_owned();
            let pattern = patterns.as_list().unwrap()[0].as_str().unwrap().to_owned();
            let written: Vec<&str> =
                pattern.split('/').map(|part| if part.starts_with('{') { "*" } else { part }).collect();
            resources.insert(text(&resource, "type"), (name, written.join("/")));
        }
        for field in message.fields() {
            if let Some(reference) = option(&field.options(), "google.api.resource_reference") {
                references.extend([text(&reference, "type"), text(&reference, "child_type")]);
            }
        }
    }
    references.remove("");
    let mut known: BTreeSet<String> = resources.keys().cloned().collect();
    // Resources that no message stands for.
    for file in pool.files().filter(|file| file.package_name().starts_with("belay.")) {
        let definitions = option(&file.options(), "google.api.resource_definition");
        let types = definitions.iter().flat_map(|definitions| definitions.as_list().unwrap());
        known.extend(types.map(|definition| text(definition, "type")));
    }
    assert!(references.is_subset(&known), "{:?}", references.difference(&known));
    for (name, pattern) in resources.values() {
        let file = name.parent_file();
        let source = std::fs::read_to_string(format!("{}/{}", env!("CARGO_MANIFEST_DIR"), file.name())).unwrap();
        assert!(source.contains(&format!("// `{pattern}`")), "{}: its comment lacks `{pattern}`", name.full_name());
    }
}
