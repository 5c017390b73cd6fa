//! The names of attributes, in one place because they still change. The GenAI names are in development.

/// The version of the conventions that the names below are from.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// The kind of work: one of [`operation`].
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// The tool that was called.
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
/// The call's name.
pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// `function` or `extension`.
pub const GEN_AI_TOOL_TYPE: &str = "gen_ai.tool.type";
/// The plan's name.
pub const GEN_AI_WORKFLOW_NAME: &str = "gen_ai.workflow.name";
/// The agent's name.
pub const GEN_AI_AGENT_NAME: &str = "gen_ai.agent.name";
/// The model that is asked, by its name in the settings.
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// The tokens of a prompt, the cached ones included.
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Those of a prompt that the server had in its cache.
pub const GEN_AI_USAGE_CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
/// The tokens of an answer, its reasoning included.
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The instructions of a model, as a JSON list of parts; only where messages are asked for.
pub const GEN_AI_SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
/// The messages to a model, as a JSON list; likewise.
pub const GEN_AI_INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// Its answer, as a JSON list; likewise.
pub const GEN_AI_OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// The execution.
pub const GEN_AI_CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// The reason's code; only where something failed.
pub const ERROR_TYPE: &str = "error.type";
/// `grpc`.
pub const RPC_SYSTEM_NAME: &str = "rpc.system.name";
/// `belay.v1.ExecutorService/StartExecution`.
pub const RPC_METHOD: &str = "rpc.method";
/// The gRPC code's name.
pub const RPC_RESPONSE_STATUS_CODE: &str = "rpc.response.status_code";
/// The exit code of a command.
pub const PROCESS_EXIT_CODE: &str = "process.exit.code";
/// The program's name.
pub const PROCESS_EXECUTABLE_NAME: &str = "process.executable.name";
/// The service's name, of the resource.
pub const SERVICE_NAME: &str = "service.name";
/// The service's version, of the resource.
pub const SERVICE_VERSION: &str = "service.version";
/// A run of the service, of the resource.
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";

/// The prefix of the attributes of an execution's labels, such as `belay.label.team`.
pub const BELAY_LABEL: &str = "belay.label";
/// `namespaces/*/executions/*`.
pub const BELAY_EXECUTION: &str = "belay.execution";
/// The step's id.
pub const BELAY_STEP: &str = "belay.step";
/// The turn of a model, from 1.
pub const BELAY_TURN: &str = "belay.turn";
/// The attempt, from 1.
pub const BELAY_ATTEMPT: &str = "belay.attempt";
/// How it ended: the state's name.
pub const BELAY_STATE: &str = "belay.state";
/// The kind of failure: the error class's name.
pub const BELAY_ERROR_CLASS: &str = "belay.error.class";
/// `namespaces/*/approvals/*`.
pub const BELAY_APPROVAL: &str = "belay.approval";
/// The decision.
pub const BELAY_DECISION: &str = "belay.decision";
/// The revision of the policy.
pub const BELAY_POLICY_REVISION: &str = "belay.policy.revision";
/// How many files a call changed.
pub const BELAY_EFFECT_CHANGES: &str = "belay.effect.changes";

/// Values of [`GEN_AI_OPERATION_NAME`]; a span is called by it and what it works on: `execute_tool read_file`.
pub mod operation {
    /// An execution.
    pub const INVOKE_WORKFLOW: &str = "invoke_workflow";
    /// An agent's loop.
    pub const INVOKE_AGENT: &str = "invoke_agent";
    /// A model's turn.
    pub const CHAT: &str = "chat";
    /// A tool call.
    pub const EXECUTE_TOOL: &str = "execute_tool";
}
