//! Imports go down.

use crate::house::{self, Crate};

/// Low to high: a crate imports only from layers before its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Values,
    Machines,
    Contract,
    Adapters,
    Services,
    /// All services in one process.
    Bundle,
    Clients,
    /// Also the examples, whose tests use the product.
    Tests,
}

use Layer::*;

/// The layer of each crate. ARCHITECTURE.md, "Layers", documents the same, and what each layer must not depend on: add a new crate to both.
const LAYERS: &[(&str, Layer)] = &[
    ("belay-agent-output", Values),
    ("belay-condition", Values),
    ("belay-defects", Values),
    ("belay-grant", Values),
    ("belay-json", Values),
    ("belay-metrics", Values),
    ("belay-network", Values),
    ("belay-plan", Values),
    ("belay-policy", Values),
    ("belay-reasons", Values),
    ("belay-redaction", Values),
    ("belay-text", Values),
    ("belay-yaml", Values),
    ("belay-execution", Machines),
    ("belay-model", Machines),
    ("belay-agent", Machines),
    ("belay-reading", Machines),
    ("belay-schedule", Machines),
    ("belay-journal", Contract),
    ("belay-proto", Contract),
    ("belay-blobs", Adapters),
    ("belay-credentials", Adapters),
    ("belay-group-commit", Adapters),
    ("belay-journal-memory", Adapters),
    ("belay-journal-sqlite", Adapters),
    ("belay-json-schema", Adapters),
    ("belay-mcp", Adapters),
    ("belay-model-http", Adapters),
    ("belay-proxy", Adapters),
    ("belay-sandbox", Adapters),
    ("belay-service-kit", Adapters),
    ("belay-settings", Adapters),
    ("belay-sqlite", Adapters),
    ("belay-telemetry", Adapters),
    ("belay-webhooks", Adapters),
    ("belay-workspace", Adapters),
    ("belay-approval-gate", Services),
    ("belay-executor", Services),
    ("belay-tool-runner", Services),
    ("belay-all-in-one", Bundle),
    ("belay-cli", Clients),
    ("belay-architecture-tests", Tests),
    ("belay-bench", Tests),
    ("belay-converters", Tests),
    ("belay-e2e", Tests),
    ("belay-model-server", Tests),
    ("belay-plan-tests", Tests),
    ("belay-real-projects", Tests),
    ("belay-simulation", Tests),
    ("belay-soak", Tests),
];

/// Allowed dependencies within a layer, or of tests on what is for tests, with the reason.
const ALLOWED_WITHIN_LAYER: &[(&str, &str, &str)] = &[
    ("belay-journal-sqlite", "belay-sqlite", "all stores on SQLite share how they reach the disk"),
    ("belay-sqlite", "belay-group-commit", "a writer on SQLite blocks, which decides where it runs"),
    ("belay-soak", "belay-e2e", "both run the real programs, and talk to them as clients do"),
    ("belay-journal", "belay-proto", "a store reports its position, which services exchange"),
    ("belay-plan", "belay-json", "all JSON from outside is read in the same way"),
    ("belay-plan", "belay-reasons", "a plan says what follows a failure by its class"),
    ("belay-execution", "belay-model", "what a turn may cost follows from the price of its model"),
    ("belay-agent", "belay-model", "a conversation is what a model is asked, and its answers"),
    (
        "belay-execution",
        "belay-agent",
        "a step with a goal is decided as every other step is, by what its model has answered",
    ),
    ("belay-reading", "belay-execution", "what follows from events for readers is read from the events themselves"),
    ("belay-redaction", "belay-defects", "a planted defect is asked for in the code that prevents it"),
    ("belay-policy", "belay-yaml", "all files that people write are parsed in the same way"),
    ("belay-plan", "belay-text", "what people are shown is written in one way"),
    ("belay-policy", "belay-text", "what people are shown is written in one way"),
    ("belay-e2e", "belay-model-server", "models of tests are asked by the real programs"),
    ("belay-model-http", "belay-model-server", "its tests ask a server that owns every byte"),
    ("belay-yaml", "belay-text", "what people are shown is written in one way"),
];

/// The crates that clients may import.
const OPEN_TO_CLIENTS: &[&str] = &["belay-all-in-one", "belay-proto", "belay-reasons", "belay-text"];

/// Whether the crate is pure: no I/O, no async, no clock. See [`crate::pure`].
pub(crate) fn is_pure(name: &str) -> bool {
    layer(name).is_some_and(|layer| layer <= Machines)
}

fn layer(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// The service that owns the crate; no other service may import it.
fn owner(member: &Crate) -> Option<&str> {
    let service = member.folder.strip_prefix("services/")?.split('/').next()?;
    (!["shared", "all-in-one"].contains(&service)).then_some(service)
}

/// Returns a message for each crate without a layer and each forbidden dependency.
fn violations(crates: &[Crate]) -> Vec<String> {
    let mut found = Vec::new();
    for from in crates {
        let Some(upper) = layer(&from.name) else {
            found.push(format!(
                "`{}` ({}) is unknown: give it a layer, here and in ARCHITECTURE.md",
                from.name, from.folder
            ));
            continue;
        };
        for to in &from.imports {
            let to = crates.iter().find(|known| known.name == *to).expect("imports are members");
            // An unknown crate has its own message.
            let Some(lower) = layer(&to.name) else { continue };
            found.extend(refusal(from, upper, to, lower));
        }
    }
    found
}

fn refusal(from: &Crate, upper: Layer, to: &Crate, lower: Layer) -> Option<String> {
    let arrow = format!("`{}` imports `{}`", from.name, to.name);
    if ALLOWED_WITHIN_LAYER.iter().any(|(a, b, _)| *a == from.name && *b == to.name) {
        return None;
    }
    if upper == lower {
        return Some(format!(
            "{arrow}: both are in the layer {upper:?}, and crates of one layer must not import each other"
        ));
    }
    if upper < lower {
        return Some(format!("{arrow}: this imports a higher layer, from {upper:?} to {lower:?}"));
    }
    if upper == Clients && !OPEN_TO_CLIENTS.contains(&to.name.as_str()) {
        return Some(format!("{arrow}: a client may import only {}", OPEN_TO_CLIENTS.join(" and ")));
    }
    match owner(to) {
        Some(service) if upper < Bundle && owner(from) != Some(service) => Some(format!(
            "{arrow}: it is inside services/{service}; services communicate over gRPC, and shared code is in services/shared"
        )),
        _ => None,
    }
}

#[test]
fn imports_go_down() {
    let found = violations(&house::crates());
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn the_table_names_no_crate_that_is_gone() {
    let crates = house::crates();
    let is_member = |name: &str| crates.iter().any(|member| member.name == name);
    let mut named: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    named.extend(ALLOWED_WITHIN_LAYER.iter().flat_map(|(from, to, _)| [*from, *to]));
    named.extend(OPEN_TO_CLIENTS);
    named.retain(|name| !is_member(name));
    assert!(named.is_empty(), "there is no crate {named:?}: remove it from tests/architecture/src/layers.rs");
}

#[test]
fn the_map_shows_every_crate_below_the_tests() {
    let map = std::fs::read_to_string(house::root().join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<&str> = map.lines().filter(|line| line.starts_with("| L")).collect();
    for (name, _) in LAYERS.iter().filter(|(_, layer)| *layer < Tests) {
        let shown = rows.iter().any(|row| row.contains(&format!("`{name}`")));
        assert!(shown, "ARCHITECTURE.md, \"Layers\", does not show `{name}`");
    }
}

/// An invented workspace: each crate with its folder and its imports.
fn made_up(crates: &[(&str, &str, &[&str])]) -> Vec<String> {
    let house: Vec<Crate> = crates
        .iter()
        .map(|(name, folder, imports)| Crate {
            name: (*name).to_owned(),
            folder: (*folder).to_owned(),
            imports: imports.iter().map(|name| (*name).to_owned()).collect(),
        })
        .collect();
    violations(&house)
}

const PLAN: (&str, &str, &[&str]) = ("belay-plan", "services/executor/plan", &[]);
const RUNNER: (&str, &str, &[&str]) = ("belay-tool-runner", "services/tool-runner", &[]);

#[test]
fn an_unknown_crate_is_refused() {
    let found = made_up(&[("belay-cupboard", "services/cupboard", &[])]);
    let [sentence] = found.as_slice() else { panic!("{found:?}") };
    assert!(sentence.contains("`belay-cupboard`") && sentence.contains("give it a layer"), "{sentence}");
}

#[test]
fn an_arrow_up_is_refused() {
    let found = made_up(&[
        ("belay-plan", "services/executor/plan", &["belay-execution"]),
        ("belay-execution", "services/executor/execution", &["belay-plan"]),
    ]);
    assert_eq!(found, ["`belay-plan` imports `belay-execution`: this imports a higher layer, from Values to Machines"]);
}

#[test]
fn an_arrow_to_a_neighbour_is_refused_unless_it_is_listed() {
    let found = made_up(&[
        ("belay-sqlite", "services/shared/sqlite", &["belay-service-kit"]),
        ("belay-service-kit", "services/shared/service-kit", &[]),
        ("belay-journal-sqlite", "services/executor/journal-sqlite", &["belay-sqlite"]),
    ]);
    let [sentence] = found.as_slice() else { panic!("{found:?}") };
    assert!(sentence.starts_with("`belay-sqlite` imports `belay-service-kit`: both are in"), "{sentence}");
}

#[test]
fn a_services_inside_is_its_own() {
    let found = made_up(&[
        PLAN,
        ("belay-executor", "services/executor", &["belay-plan"]),
        ("belay-tool-runner", "services/tool-runner", &["belay-plan"]),
        ("belay-service-kit", "services/shared/service-kit", &["belay-plan"]),
        ("belay-simulation", "tests/simulation", &["belay-plan", "belay-executor"]),
    ]);
    let [runner, kit] = found.as_slice() else { panic!("{found:?}") };
    assert!(runner.starts_with("`belay-tool-runner` imports `belay-plan`: it is inside services/executor"), "{runner}");
    assert!(kit.starts_with("`belay-service-kit` imports `belay-plan`: it is inside services/executor"), "{kit}");
}

#[test]
fn the_command_line_knows_no_service() {
    let found = made_up(&[
        RUNNER,
        ("belay-proto", "proto", &[]),
        ("belay-all-in-one", "services/all-in-one", &["belay-tool-runner"]),
        ("belay-cli", "clients/cli", &["belay-proto", "belay-all-in-one", "belay-tool-runner"]),
    ]);
    assert_eq!(
        found,
        [
            "`belay-cli` imports `belay-tool-runner`: a client may import only belay-all-in-one and belay-proto and belay-reasons and belay-text"
        ]
    );
}
