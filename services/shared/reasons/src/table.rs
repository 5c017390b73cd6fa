//! The table itself. A row: name, topic, exit code, whether it is retryable, classes of step failures, gRPC codes; what happened; what to do.

use crate::{Code, ErrorClass, Reason, Topic};

macro_rules! table {
    ($($name:ident $topic:ident $exit:literal $retryable:literal [$($class:ident)*] [$($code:ident)*] $what:literal $advice:literal)*) => {
        $(
            #[doc = $what]
            pub const $name: &str = stringify!($name);
        )*

        /// Every reason, by topic.
        pub const ALL: &[Reason] = &[$(
            Reason {
                name: $name,
                topic: Topic::$topic,
                exit: $exit,
                retryable: $retryable,
                classes: &[$(ErrorClass::$class),*],
                codes: &[$(Code::$code),*],
                what: $what,
                advice: $advice,
            },
        )*];
    };
}

table! {
    INVALID_USAGE Input 2 false [] []
    "The command line is not valid: a mistyped command or flag, a value in the wrong form, or two settings that contradict each other. Nothing happened."
    "Use the suggestion, or read `belay COMMAND --help`."

    INVALID_ARGUMENT Input 2 false [InvalidArguments] [InvalidArgument]
    "A field of a request has a value that is not allowed. Nothing happened."
    "Change the field that the message names; it says which values are allowed."

    PLAN_UNREADABLE Input 2 false [] []
    "The plan's file cannot be read: it does not exist, is a folder, may not be read, or is not UTF-8. Nothing happened."
    "Check the path, and save the file as UTF-8."

    PLAN_TOO_LARGE Input 2 false [] []
    "The plan is longer than 4 MiB. Nothing was sent."
    "Put large content into files and pass their paths, or split the plan."

    PLAN_REFUSED Input 2 false [] [InvalidArgument]
    "The plan is not valid. No execution was created. Each problem is listed with its field, line and column; `-o json` has all of them."
    "Correct the fields, then check with `belay plan validate PLAN`. docs/user-guide/plans.md has every field and limit."

    POLICY_INVALID Input 2 false [] []
    "The policy file cannot be used: it cannot be read, has an unknown key or a wrong value, or a rule that its own examples contradict. Nothing was started, and no other policy is used instead."
    "Correct the lines that are named, then check with `belay policy check FILE`. docs/user-guide/policies.md has every key."

    CONFIG_INVALID Input 2 false [] []
    "The settings file cannot be used: it cannot be read, has an unknown key or a value out of bounds, or others may write it. Nothing was started, and no other settings are used instead."
    "Correct the lines that are named, then check with `belay config show`. docs/user-guide/settings.md has every key."

    NETWORK_PROFILE_NOT_FOUND Input 2 false [] []
    "The settings have no network profile of this name, and none is built in."
    "`belay network list` shows all of them. docs/user-guide/network.md says how to write one."

    WORKSPACE_INVALID Input 2 false [SandboxViolation] [InvalidArgument]
    "The folder cannot be a workspace: it does not exist, is a file or `/`, cannot be written, overlaps a state directory, or its file system cannot hold isolated changes. Nothing was started."
    "Name an existing folder of your own with `--workspace`; an absolute path for a server over TCP."

    WORKSPACE_NOT_ALLOWED Input 2 false [SandboxViolation] [InvalidArgument]
    "The folder is not below any root that the tool runner may work in. Symbolic links are resolved first."
    "Name a folder below one of the runner's `--workspace-root` folders, or none: then the execution gets a new folder."

    TELEMETRY_UNUSABLE Input 2 false [] []
    "An `OTEL_…` variable has a value that cannot be used. Nothing was started. An unavailable collector is not an error."
    "Set the variable as the message says, or `OTEL_SDK_DISABLED=true` to send no spans."

    NO_TERMINAL Input 2 false [] []
    "An approval must be shown to a person, or a person must confirm a deletion, and standard input or standard error is not a terminal. Nothing happened."
    "Look at it with `belay approvals show ID` or `belay executions get ID`, then give `--yes`. Scripts that cannot look leave it to the policy: `belay run --approve auto`."

    INTERRUPTED Input 130 true [] []
    "The command was stopped after the plan had been sent and before the server answered. The execution may have started."
    "`belay executions list` shows whether it did. With `--request-id`, the same command never starts it twice."

    EXECUTION_EXISTS Executions 2 false [] [AlreadyExists]
    "An execution with this id exists, maybe one that has ended. Nothing was started."
    "Use another `--id`, or none. For a script that may run twice use `--request-id`: the same request returns the same execution."

    REQUEST_ID_REUSED Executions 2 false [] [AlreadyExists]
    "This request id was used for another request: another plan, other flags, or another decision. Nothing was started, changed or decided."
    "Use a new request id (`--request-id`) for a new request."

    EXECUTION_NOT_FOUND Executions 2 false [] [NotFound]
    "No execution has this name, or an id that begins with what was typed."
    "`belay executions list` shows the executions. Check `--namespace`, `--state-dir` and `BELAY_SERVER`."

    SCHEDULE_NOT_FOUND Executions 2 false [] [NotFound]
    "The namespace has no schedule of this name."
    "`belay schedules list` shows those that there are. Check `--namespace`, `--state-dir` and `BELAY_SERVER`."

    SCHEDULE_EXISTS Executions 2 false [] [AlreadyExists]
    "The namespace has a schedule of this name. Nothing was created or changed."
    "Use another name, or delete that one with `belay schedules delete NAME` first: its executions stay."

    TOO_MANY_SCHEDULES Executions 2 false [] [ResourceExhausted]
    "The executor has 1,000 schedules, which is as many as it keeps. Nothing was created."
    "Delete schedules that are not needed any more with `belay schedules delete NAME`."

    LIMIT_FULL Executions 2 true [RateLimit] [ResourceExhausted]
    "A limit over executions of the plan (`limits`) is full, and the plan says that it is not started then (`when_full: refuse`). Nothing was started; a step whose plan it is fails."
    "Start it again later. `belay executions list --filter 'plan_id = \"PLAN\"'` shows the executions of a plan; with `when_full: wait` in the plan it waits for its turn."

    EXECUTION_SET_ASIDE Executions 1 false [] [Internal]
    "A fault in the executor stopped the execution several times in a row, so it is driven no more until the executor is restarted. Nothing of it is lost."
    "Restart the executor, and report the fault that its log names. `belay executions get` shows how far it is."

    FILES_NOT_KEPT Executions 2 false [] [FailedPrecondition]
    "The files as they were after that turn of a model are not kept: each of its calls has committed its own changes, or those of the step were committed. Nothing was started."
    "Look at the files that the message names. To continue with the files as they are now, add `--on-current-files` (`on_current_files`)."

    STEP_NOT_FOUND Executions 2 false [] [NotFound]
    "The execution's plan has no step with this id."
    "`belay executions get` shows the ids of its steps."

    EXECUTION_AMBIGUOUS Executions 2 false [] []
    "More than one execution has an id that begins with what was typed."
    "Type more of the id, or `@last` for the newest."

    EXECUTION_ENDED Executions 2 false [] [FailedPrecondition]
    "The execution has ended, and the request needs one that has not. Nothing happened."
    "`belay executions get ID` shows how it ended. Start the plan again for another execution."

    EXECUTION_NOT_ENDED Executions 2 false [] [FailedPrecondition]
    "Only an execution that has ended can be deleted, and this one has not. Nothing happened."
    "Cancel it with `belay executions cancel ID`, or wait for its end, then delete it."

    END_NOT_RECORDED Executions 2 false [] [FailedPrecondition]
    "The execution carries out the plan of a step, and the execution of that step has not recorded its end: deleting it would lose its result. Nothing happened."
    "The message names the step: resume its execution with `belay executions resume ID`, or cancel it; then delete this one."

    EXECUTION_DELETED Executions 2 false [] [NotFound]
    "The execution was deleted while it was read, watched or waited for, or before the request that started it was repeated. Nothing was started."
    "Nothing of it is kept. Start the plan again for another execution, with a new request id."

    EXECUTION_ID_DELETED Executions 2 true [] [FailedPrecondition]
    "An execution with this id was deleted a short while ago. Its id can be used again 15 minutes after the tool runner and the approval gate have forgotten it, so that nothing that a network has delayed is taken for a part of the new one. Nothing was started."
    "Choose another id, or start it later."

    WRONG_STATE Executions 2 false [] [FailedPrecondition]
    "The execution's state does not allow the request; it may be paused already. Nothing happened."
    "`belay executions get ID` shows its state and what it waits for."

    TOO_MANY_SIGNALS Executions 2 false [] [FailedPrecondition]
    "The execution keeps 1,000 signals that no step has taken. The signal was not taken."
    "`belay executions get ID` shows which signals its steps wait for: send those, or cancel the execution."

    RETRY_PARENT Executions 2 false [] [FailedPrecondition]
    "The execution carries out the plan of a step. The execution of that step has recorded how it ended and would not take another result, so this one is not retried by itself. Nothing happened."
    "The message names the execution to retry: `belay executions retry PARENT` runs the step again."

    NOTHING_TO_RETRY Executions 2 false [] [FailedPrecondition]
    "No step of the execution has failed or was stopped, so that nothing has to run again."
    "To run completed steps again, name the first of them: `belay executions retry ID --from STEP`."

    PLAN_REVISION_MISMATCH Executions 2 false [] [FailedPrecondition]
    "The plan of the execution was changed after the one was read that the change began with. Nothing was changed."
    "Get the plan again (`belay executions get ID --plan`), change that, and ask again."

    ETAG_MISMATCH Executions 2 false [] [Aborted]
    "The execution changed after it was read. Nothing happened."
    "Read the execution again, then repeat the request with its new etag."

    EXECUTION_NOT_DRIVEN Executions 2 false [] []
    "The execution has not ended, and no process drives it: its `belay run` is gone, and no `belay serve` uses this state directory."
    "`belay executions resume ID` drives it to its end; `belay serve` drives all that have not ended."

    EXECUTION_CANCELLED Executions 1 false [] []
    "The execution was cancelled."
    "`belay executions get ID` shows by whom, why, and how far it came."

    EXECUTION_TIMED_OUT Executions 34 false [] []
    "The plan's `timeout` ran out. It counts from acceptance and continues while the execution is paused. Running calls were stopped."
    "Raise the plan's `timeout`, or find the slow step with `belay executions get ID`."

    EXECUTION_FAILED Executions 30 false [] []
    "The execution failed, and its record has no more precise reason."
    "`belay executions get ID` shows each step's error."

    WAIT_TIMEOUT Executions 34 true [] []
    "The execution had not ended when `--wait-timeout` was over. A server continues it; a `belay run` without a server has paused it."
    "The `next` line returns to it."

    SEQUENCE_OUT_OF_RANGE Executions 2 false [] []
    "Events were to be shown after one that the execution does not have."
    "Use a sequence from the range that is shown, or leave `--after` out."

    TOOL_FAILED Calls 30 true [Transient InvalidArguments] []
    "A tool reported a failure; its message is shown."
    "Read the message. If the failure is temporary, give the step a `retry`."

    TOOL_NOT_FOUND Calls 2 false [InvalidArguments] [NotFound]
    "No tool has this name."
    "`belay tools list` shows the tools. In a running execution the runner lost a tool that it had."

    INVALID_ARGUMENTS Calls 30 false [InvalidArguments] []
    "The arguments of a call do not match the tool's schema, or contradict each other. Nothing was done. A template brought in a value of another type, or a pattern, a range or a variable is not valid."
    "`belay tools describe TOOL` shows the types; look at the output of the step that the template names."

    INVALID_RESULT Calls 30 true [InvalidResult] []
    "A tool returned a result that does not match its own schema, or that cannot be taken as it is: no JSON, a name twice in an object, a number whose digits would be lost, bytes that are not UTF-8. The result is dropped."
    "Give the step a `retry` if it happens now and then; otherwise fix the tool or its schema."

    OUTPUTS_REFUSED Calls 30 true [InvalidResult] []
    "A command has appended to `$BELAY_OUTPUT` what cannot be taken: a line that is neither `name=value` nor a JSON object, a name that is odd or given twice, more than 1 MiB. Nothing that the command changed is committed."
    "The message has the line. Fix the command, and run `belay executions retry ID`."

    PRECONDITION_FAILED Calls 30 false [PreconditionFailed] []
    "A precondition of a step (`preconditions`) does not hold. The call was not made."
    "The message has the check, and `belay why ID` the end of what its program printed. Fix the cause or the plan, and run `belay executions retry ID`."

    POSTCONDITION_FAILED Calls 30 false [PostconditionFailed] []
    "A postcondition of a step (`postconditions`) does not hold. The call's changes are in place; they are undone if the step has `compensate`."
    "The message has the check, and `belay why ID` the end of what its program printed. Fix the cause, and run `belay executions retry ID`, which makes the call again."

    INVALID_OUTPUT Calls 30 false [PostconditionFailed] []
    "A step's output does not fit the plan's `output_schema`. Its call's changes are in place; they are undone if the step has `compensate`."
    "The message has what does not fit. Correct the schema or the call, and run `belay executions retry ID --plan FILE`, which makes the call again."

    BUDGET_EXHAUSTED Calls 1 false [BudgetExhausted] []
    "A call was not made, because the `budget` of its step or its plan is used up, and the plan says that the step fails then; or an execution of a step's plan has used up what its parent gave it."
    "`belay executions get ID` shows what is used. Raise the budget, and run `belay executions retry ID --plan FILE`."

    RESULT_LOST Calls 1 false [Internal] []
    "A call completed, and the tool runner no longer has its result, which was too large for a message, or returns another one. What the call changed is in place. Nothing stands in for the result."
    "Look at the runner's log: its ledger was replaced, or its store is damaged. Check what the call changed, then start a plan without it; a call that only reads is sent again automatically before it fails with this."

    UNRESOLVED_REFERENCE Calls 30 false [InvalidArguments] []
    "A template names a value that the other step's output does not have. The tool was not called."
    "The message shows what the output has; `belay executions get ID -o json` shows all of it."

    CHILD_FAILED Calls 30 false [Crash RateLimit Fatal AgentUnavailable Transient Timeout InvalidArguments InvalidResult PreconditionFailed PostconditionFailed SandboxViolation ApprovalDenied PolicyDenied BudgetExhausted OutcomeUnknown Internal] []
    "The execution of a step's plan failed. The message has its name, and its first failure, whose class is that of the step's."
    "`belay why ID` with the name of that execution says why it failed. Correct the plan, and run `belay executions retry ID --plan FILE`, which starts the step's plan from its beginning."

    CHILD_CANCELLED Calls 1 false [Cancelled] []
    "The execution of a step's plan was cancelled, and not by its parent, which is not being stopped: the step has failed."
    "The events of that execution say who cancelled it. `belay executions retry ID` starts the step's plan again."

    CHILD_REFUSED Calls 30 false [InvalidArguments Internal] []
    "The plan of a step could not be started, or what it returned cannot be the step's output: the inputs do not fit the plan, a tool is missing that was there, its execution was deleted, or its outputs are too large."
    "The message says which: correct the plan or its inputs, and run `belay executions retry ID --plan FILE`."

    CHILD_LOST Calls 1 false [OutcomeUnknown] []
    "The execution that carried out a step's plan is not in the store any more, so its result cannot be known. It is not started again, since it may have done its work."
    "Find out what it has done. Then `belay executions retry ID` starts the step's plan anew, and `belay executions skip ID STEP` continues without it."

    LIST_REFUSED Calls 30 false [InvalidArguments] []
    "The list for each entry of which a step runs (`for_each`) is not a list, or is too long or too large: the step ran for none. Or a model has had so many turns and calls that the execution has as many steps as it may have."
    "The message has the value and the limit: correct the plan or the step that makes the list, and run `belay executions retry ID --plan FILE`."

    ITEMS_FAILED Calls 30 true [Crash RateLimit Fatal AgentUnavailable Transient Timeout InvalidArguments InvalidResult PreconditionFailed PostconditionFailed SandboxViolation ApprovalDenied PolicyDenied BudgetExhausted OutcomeUnknown Internal] []
    "A step that runs for each entry of a list has failed, because the steps for some entries have, or did not start after another step of its group had failed. The others have run to their end."
    "The message names the first; `belay why ID` shows why it failed. `belay executions retry ID` runs those that failed again, and keeps the others."

    ROUNDS_EXHAUSTED Calls 30 false [PostconditionFailed] []
    "The last round of a step that repeats was not enough: its `until` does not hold after `max` rounds. What the rounds did is done."
    "`belay executions get ID` lists the rounds, and `${STEP.results}` has what each returned. Raise `max`, or correct `until` or what a round does, and run `belay executions retry ID --plan FILE`, which begins with the first round."

    ITEMS_TOO_LARGE Calls 30 false [InvalidResult] []
    "The outputs of the steps for all entries of a list are too large to be one list, which would be the output of their step. What they did is done."
    "Let the steps write files, and return only what later steps need."

    OUTPUTS_TOO_LARGE Calls 30 false [InvalidResult] []
    "The `outputs` of a plan are too large or nested too deep, or read too much of what its steps returned. The execution has ended as it would without them, and has none; a step that carries out the plan fails."
    "Let the steps write files, and let the outputs name the paths, or smaller parts of the results. `belay executions retry ID --from STEP --plan FILE` computes them anew."

    RESOLVED_AS_FAILED Calls 1 false [OutcomeUnknown] []
    "The outcome of a call was unknown, and a person found out that it had failed (`belay executions resolve --failed`)."
    "The message has what the person wrote. Start a plan with what is left to do."

    CONDITION_FAILED Calls 30 false [InvalidArguments] []
    "A step's `condition` is neither true nor false with the values that there are: it compares text with a number, asks for what a value does not have, or takes too much work. The step did not run."
    "The message shows the condition and what is wrong. Ask with `has(…)` for what may be missing, and look at the values with `belay executions get ID -o json`."

    TIMEOUT Calls 34 true [Timeout] []
    "A call took longer than its limit and was stopped: the step's `attempt_timeout`, otherwise its `timeout`, otherwise the tool's default. The limit counts until what the call changed has been examined."
    "`belay executions get ID` shows what it printed last. Raise `timeout` or `attempt_timeout`, or give the step a `retry`."

    STEP_TIMEOUT Calls 34 false [Timeout] []
    "The step's `timeout` ran out between two attempts, so no further one was made."
    "Raise the step's `timeout`, or shorten its `backoff`."

    CONFLICT Calls 30 true [Transient Cancelled] []
    "Another call or a person changed a path that this call touched too. Nothing of the call was committed. It runs again on the new state, up to three times, without using up an attempt."
    "Nothing. If the step fails with it, order the steps with `depends_on`, or set `exclusive: true`."

    STEP_CONFLICT Calls 30 false [PreconditionFailed] []
    "A path that a step with `effects: per_step` has changed was changed by another call or a person before the step committed it. Nothing of the step was committed. A model is shown both versions and goes on, as long as it has a turn left."
    "Nothing for a model that goes on. If the step has failed with it, run it again on the current files: `belay executions retry ID`. If it happens again, order the steps with `depends_on`, or give the step a workspace of its own."

    LAYER_GONE Calls 30 false [PreconditionFailed] []
    "The changes of the calls of a step with `effects: per_step` are gone, or differ from those that were kept: the folder `.belay` of the workspace was removed or written to, or the runner has lost its ledger. Nothing of the step was committed."
    "Run the step again: `belay executions retry ID`."

    FAILED_BESIDE_COMMITS Calls 30 true [Transient] []
    "A call failed while other calls committed in its workspace, and may have seen half of their work. It runs again once, without using up an attempt."
    "Nothing. If it happens often, order the steps with `depends_on`, or set `exclusive: true`."

    WORKSPACE_FAILED Calls 30 true [Transient] [Unavailable]
    "The workspace could not be used, for a reason that may pass: another Belay has it open, or its disk fails. Nothing in it was changed."
    "Do what the message says; a `retry` helps where another process was only busy with it."

    WORKSPACE_FULL Calls 30 true [Transient] [Unavailable]
    "The disk of the workspace, or a quota on it, has no room for what a call changes, or less than commands leave free (`commands.reserve`). The call changed nothing and runs again after a growing delay, for about an hour, without using up an attempt."
    "Make room. A waiting execution continues automatically; a failed one must be started again."

    WORKSPACE_READ_ONLY Calls 30 true [Transient] [Unavailable]
    "The file system of the workspace is read-only: it is mounted so, or the kernel made it so after an error of the disk. The call changed nothing and runs again after a growing delay, for about an hour, without using up an attempt."
    "Check the disk, and remount its file system for writing. A waiting execution continues automatically; a failed one must be started again. A cancellation that waits for it ends with `belay executions cancel --kill`."

    EFFECT_REFUSED Calls 32 false [SandboxViolation] []
    "A call ran, and its changes cannot be committed, so they were discarded: changes to Belay's own files, or more files and bytes than one call may change."
    "Leave Belay's own files where they are, or change less in one step. What the command printed is kept with the failed attempt."

    EFFECT_TOO_LARGE Calls 32 false [SandboxViolation] []
    "A call changed so many files that the list alone is longer than 8 MiB, and the policy requires approval. All of it was dropped."
    "Change less in one step, or let a rule of the policy decide about these paths."

    TOO_LARGE Calls 30 false [InvalidArguments] []
    "A call's arguments are larger than one message may be (16 MiB), or its result is larger than 64 MiB. A call whose result is too large has changed nothing, unless its tool has effects outside the workspace."
    "Use a smaller part of the output in the template, or pass a file."

    CANCELLED Calls 1 false [Cancelled] [Cancelled]
    "A call was cancelled because its execution was cancelled or paused or another step failed; as a bare gRPC code, a request was."
    "Nothing, if that was intended. `belay executions get ID` shows who asked for it."

    CALL_CANCELLED_BY_RUNNER Calls 30 true [Transient] []
    "The tool runner cancelled ten calls of one attempt without being asked to."
    "Look at the runner's log. A runner reports a failing tool as FAILED with a class."

    OUTCOME_UNKNOWN Calls 1 false [OutcomeUnknown] []
    "A call that cannot be repeated safely was started, and its end was lost: with the process, the connection, or its row in the ledger."
    "Find out whether it took effect; the runner's log names the call. Then `belay executions resolve ID STEP` resumes the execution: with `--completed`, `--failed` or `--again`."

    REASON_MISSING Calls 1 false [Internal PolicyDenied OutcomeUnknown Timeout] []
    "A call failed, and the runner gave no reason."
    "Look at the runner's log. It is another runner than Belay's, or a newer one."

    TOOL_FACTS_MISSING Calls 1 false [Internal] []
    "The execution's record lacks what it must say about a tool: a fault of Belay. Nothing was called."
    "Report it with the output of `belay executions get ID -o json`."

    OUTSIDE_WORKSPACE Tools 32 false [SandboxViolation] []
    "A call named a path outside the workspace, or one that Belay keeps for itself: an absolute path, `..`, a symbolic link that leads out, a `.belay` folder or a state directory. Nothing was read or changed."
    "Use a path relative to the workspace; bring what lies elsewhere into the workspace first."

    FILE_NOT_FOUND Tools 30 false [InvalidArguments] []
    "Nothing exists at the path: it is misspelt, the step that creates it has not run, or it is a symbolic link to nothing. For `run_terminal` it is `cwd`."
    "Look with `list_directory`. If another step creates the file, name that step in `depends_on`."

    WRONG_FILE_TYPE Tools 30 false [InvalidArguments] []
    "The entry at the path is not of the type that the tool works on: a folder instead of a file or the reverse, a symbolic link, a pipe, a socket or a device."
    "Look with `list_directory`. Name the file that a link leads to; to delete a folder, set `recursive: true`."

    FILE_EXISTS Tools 30 false [InvalidArguments] []
    "`write_file` with `create_only` found something at the path, and left it as it is."
    "Choose another name, or leave `create_only` out to replace the file."

    FILE_TOO_LARGE Tools 30 false [InvalidArguments] []
    "The file is larger than the tool handles at once: 1 MiB for one `read_file`, 16 MiB for `modify_file`."
    "Read a part by `offset` and `length` or `start_line` and `end_line`; write a large file whole, or change it with a command."

    NOT_TEXT Tools 30 false [InvalidArguments] []
    "The file is not UTF-8 text, or `offset` lies in the middle of a character."
    "Use `encoding: base64`; take `offset` from `next_offset` of the part before."

    FILE_IO_FAILED Tools 30 true [Transient] []
    "The operating system refused to read or write a file of the workspace; the message ends with its words."
    "Fix the disk, or the file's owner or mode. A `retry` helps where the cause passes."

    EDIT_MISMATCH Tools 30 false [InvalidArguments] []
    "An edit of `modify_file` quotes text that the file does not contain, or contains more than once. No edit of the call was applied."
    "Read the file again and quote it exactly, with more context; for every occurrence set `all: true`."

    REDACTED_MARK Tools 30 false [InvalidArguments] []
    "A file would have received `[REDACTED]` where it does not contain it, which would destroy a secret. Nothing was written."
    "Take the text from the step that read it (`${step.result.content}`), edit only the lines around it, or set `allow_redacted_mark: true`."

    COMMAND_FAILED Tools 30 true [Transient] []
    "A command ended with an exit code other than 0. What it changed was dropped."
    "`belay executions get ID` shows what it printed last. For programs whose exit code is a result (`diff`, `grep`), set `check: false`."

    COMMAND_KILLED Tools 30 true [Crash] []
    "A command was ended by a signal, by a limit of its sandbox, or together with it. What it changed was dropped."
    "Signals 6 and 11 are faults of the program; 9 and code 137 mostly mean too little memory. Limits are in docs/user-guide/settings.md."

    MCP_SERVER_FAILED Tools 30 true [Transient] []
    "An MCP server ended before it answered a call, did not get ready in time, or broke the protocol. What it changed was dropped."
    "`belay executions get ID` shows what it printed last. Try its command in the workspace; `mcp_servers.NAME.start_timeout` gives it more time."

    MCP_TOOL_FAILED Tools 30 true [Transient] []
    "A tool of an MCP server says that it has failed, or its server refuses the call. What it changed was dropped."
    "The message has its words. Correct the arguments, or what it works on, and run `belay executions retry ID`."

    MCP_TOOL_CHANGED Tools 30 false [InvalidArguments] []
    "An MCP server has changed a tool since the tool runner first saw it, or does not have it any more. The tool was not called."
    "Look at what has changed in the server. The message says how the operator accepts it; plans and approvals see the tool as it is from then on."

    AGENT_FAILED Tools 30 true [Crash RateLimit Fatal AgentUnavailable Transient] []
    "An external agent has not done its task: it reports a failure, ended without reporting its end, or its exit code and its report do not agree. What it changed was dropped."
    "The message has its words, and `belay executions get ID` what it printed last. A rate limit passes; a wrong key has to be corrected by the operator; another agent may do the task (`fallback` of the step)."

    AGENT_TOKENS Tools 1 false [BudgetExhausted] []
    "An external agent has used the tokens that the operator gives it for one run, as the proxy counted them, and its next request to its model was refused. What it changed was dropped."
    "Make the task smaller, or raise `agents.NAME.max_tokens` in the settings, and run `belay executions retry ID`."

    DISK_LIMIT Tools 30 true [Transient] []
    "A command wrote more than it may, or the disk that it wrote to was about to fill up, so it was ended. What it changed was dropped."
    "The message names the bound and the setting that raises it (docs/user-guide/settings.md, Room on the disk). Have the command write less, raise the setting, or make room on the disk."

    PROGRAM_NOT_FOUND Tools 30 false [AgentUnavailable] []
    "The program of a command does not exist in the sandbox or cannot be executed (codes 126 and 127 too). What it changed was dropped."
    "`belay doctor` lists which of your programs commands see, and the settings that show the others. Name a program of the workspace by its path (`./build.sh`)."

    SANDBOX_UNAVAILABLE Tools 32 false [SandboxViolation Transient] []
    "The machine cannot provide the sandbox that commands need, so no command runs. Other tools work. Or the test of the sandbox, or the start of a command, was lost: its processes were killed, or a limit that other processes share was reached. Then the call runs again after a growing delay, for about an hour, without using up an attempt."
    "Do what the message says, then check with `belay doctor`. For a reached limit, end what uses it up or raise it."

    NETWORK_CHANGED Tools 1 true [Cancelled] []
    "The network profile of a command, or how its calls are recovered, was changed in the runner's settings after an approval had been requested. The command has not run."
    "Nothing: the call is made again, and its approval is requested with the profile as it is now."

    NETWORK_UNAVAILABLE Tools 30 true [Transient] []
    "A command asked for a network profile, and the proxy that enforces it could not be started, or failed its self-test. The command did not run, or was killed before it had a network."
    "Read the message. If the machine lacks something that the proxy needs, `belay doctor` says what; until then, remove `network` from the step, or put what it downloads into the workspace."

    NETWORK_REFUSED Tools 32 false [SandboxViolation] []
    "A request of a tool was refused by the network profile of its step, or its host leads to an address that is closed. Nothing was sent."
    "The message says why, and has the rule by which the operator allows it. `belay network check PROFILE URL` says the same before the call."

    HOST_UNREACHABLE Tools 30 true [Transient] []
    "The host of a request could not be resolved or reached, its certificate is not trusted, or it did not answer. A request that must not be made twice ends as OUTCOME_UNKNOWN instead, if the host may have got it."
    "Read the message. Authorities of your own are set with `network.authorities` (docs/user-guide/settings.md); for a host that is away for a while, give the step a `retry`."

    HTTP_STATUS Tools 30 true [Transient RateLimit InvalidArguments] []
    "A host answered a request with a status of 400 or more. The message has the status and the beginning of the body. Only 408, 425, 429 and those from 500 on are worth another attempt."
    "Correct the request as the message says. Where such a status is a result, set `check: false` (`http_request`)."

    REDIRECT_NOT_FOLLOWED Tools 30 false [InvalidArguments] []
    "A host redirected `fetch_url` to a URL that it does not follow: from https to http, one that is not a URL of a host, or one too many."
    "Ask for the URL to which it leads, if it is the right one. `http_request` returns redirects without following them."

    CONTENT_NOT_TEXT Tools 30 false [InvalidArguments] []
    "What `fetch_url` was answered with is not text. The message has its content type."
    "Use `http_request`, which returns other content in base64, or download it with a command."

    CREDENTIAL_UNAVAILABLE Tools 30 true [Transient] []
    "The network profile of a command has a credential whose value cannot be read now. The command did not run."
    "The message names the credential, its source and what is wrong. `belay doctor` reads all of them; a value that was changed is read again by the next call."

    TURN_LIMIT Calls 31 false [BudgetExhausted] []
    "The model of a step had all its turns (`agent.max_turns`), and has not completed the step. What its calls did is done; with `effects: per_step` nothing of it is committed."
    "`belay executions get ID` lists the turns and calls. Raise `max_turns`, make the task smaller or clearer, and run `belay executions retry ID --plan FILE`, which begins with the first turn."

    AGENT_STUCK Calls 31 false [BudgetExhausted] []
    "The model of a step did the same again and again with the same outcome, also after it was told: the same calls, calls that failed with the same error, or no call at all."
    "`belay executions get ID` lists the turns and calls. Say in the task what was unclear, give it the tool that it lacks, or use another model, and run `belay executions retry ID --plan FILE`."

    CONTEXT_EXHAUSTED Calls 30 false [InvalidArguments] []
    "The conversation of a step with its model does not fit into the model's window, also with the older results archived."
    "Use a model with a larger window, or make the task smaller. `belay models list` shows the windows of the settings, and `belay models check NAME` what the server has."

    CONTEXT_TRUNCATED_BY_SERVER Calls 30 false [InvalidResult] []
    "The server of a model counted fewer tokens in a prompt than in the one with which it begins: it shortens prompts without saying so, and the model has not read all of it."
    "Raise the window of the server (`num_ctx` of Ollama), or lower `models.NAME.window` to what it has; `belay models check NAME --fill-window` tries it."

    MODEL_REFUSED Calls 30 false [InvalidArguments] []
    "The model, or its server, refuses what a step asks of it."
    "The message has its words. `belay models check NAME` tries what the server can do; correct the settings or the task, and run `belay executions retry ID`. For the model of a step, `agent.fallback` names others that are asked instead."

    MODEL_ANSWER_INVALID Calls 30 true [InvalidResult] []
    "What a model's server sent is no answer that can be acted on: it is cut within a call, too large, or not of its API. Nothing of it was done."
    "The message says what is wrong. Raise `models.NAME.max_output` where an answer is cut; `belay models check NAME` tries the rest."

    MODEL_UNAVAILABLE Calls 30 true [Transient RateLimit Timeout] []
    "The server of a model cannot be reached, has failed, took too long, or is at its limit, also after the further attempts of the step."
    "The message says what happened. `belay models check NAME` asks it. Run `belay executions retry ID` when it answers again."

    MODEL_TURN_LOST Calls 30 true [Transient] []
    "The executor ended while a model answered. Nothing of that answer is recorded or was acted on, and the model is asked again; the server may count it all the same."
    "Nothing: the model is asked again by itself. When it happens again and again, look at why the executor ends."

    MODEL_NOT_FOUND Models 2 false [InvalidArguments] [NotFound]
    "The settings have no model of this name."
    "`belay models list` shows the models. One is added under `models` in the settings, which services read when they start."

    MODEL_NOT_LOCAL Models 2 false [InvalidArguments] [FailedPrecondition]
    "The settings say `local_only: true` or `air_gapped: true`, and the model's server is not on this machine. It was not asked."
    "Name a model whose `base_url` is `localhost` or a loopback address such as 127.0.0.1, or remove the setting."

    POLICY_DENIED Approvals 33 false [PolicyDenied] []
    "A rule of the policy denies the call or what it changed. Its changes were discarded."
    "Change the plan, or have the policy's owner change the rule that the message names."

    PROGRAM_NOT_ALLOWED Approvals 33 false [PolicyDenied] []
    "A command's program is not one of the plan's `allowed_commands`. It was not started. Those of the policy are told as POLICY_DENIED."
    "Add the program to `allowed_commands` in the plan, as the message names it, or use one that is in the list."

    APPROVAL_DENIED Approvals 33 false [ApprovalDenied] []
    "A person denied the call, or the policy's time limit ended before a decision. Its changes were discarded."
    "Read the reason, change the plan and start it again. To leave a step out, skip it instead."

    APPROVAL_SKIPPED Approvals 35 false [] []
    "A person skipped the step. The call's changes were discarded; steps that depend on the step are skipped too."
    "Nothing, unless the step was meant to run."

    NON_INTERACTIVE Approvals 33 false [ApprovalDenied] []
    "A rule of the policy requires approval, or a step waits for a person's answer to a form, and this execution cannot ask a person (`--approve fail`, or `auto` where a person is required). The call's changes were discarded."
    "Use `--approve prompt` and decide or answer on the terminal, or with `belay approve` and `belay approvals answer`; or add to the policy's `rules` what the failure shows as the rule that allows it (`allowing_rule` in its metadata): that allows these changes of these paths and no others."

    APPROVAL_NOT_FOUND Approvals 2 false [] [NotFound]
    "No approval has this name, or an id that begins with what was typed."
    "`belay approvals list` shows the approvals. Check `--namespace`, `--state-dir` and `BELAY_SERVER`."

    APPROVAL_AMBIGUOUS Approvals 2 false [] []
    "More than one approval has an id that begins with what was typed. Nothing was decided."
    "Type more of the id."

    ALREADY_DECIDED Approvals 2 false [] [FailedPrecondition]
    "The approval was already decided, has expired, or its execution no longer needs it. Nothing changed."
    "`belay approvals show ID` shows who decided, when and why. Run the step again for another approval."

    DIGEST_MISMATCH Approvals 2 false [] [FailedPrecondition]
    "The decision does not name the digest of what the approval is about. Nothing was decided."
    "Show the approval again and decide on what it shows; clients send back its `subject_digest`."

    OWN_REQUEST Approvals 2 false [] [PermissionDenied]
    "You started what is to be decided, and the policy has `approvals: {separate_duties: true}`. Nothing was decided."
    "Have another person decide, or change the policy."

    ANSWER_INVALID Approvals 2 false [] [InvalidArgument]
    "The answer does not match the schema of the form; the message names each place by its JSON pointer. The form still waits for an answer."
    "`belay approvals show ID` shows the form and its schema. Correct the answer and send it again."

    FORM_NEEDS_ANSWER Approvals 2 false [] [FailedPrecondition]
    "A form cannot be approved: its step waits for an answer. Nothing was decided."
    "Answer it with `belay approvals answer ID`; or deny or skip it."

    FORM_REFUSED Approvals 1 false [Internal] []
    "The approval gate refuses to ask a form; the message says why. No person was asked, and the step failed."
    "Correct the form in the plan. If the gate is of another version than the executor, upgrade the older one."

    NO_FORM Approvals 2 false [] [FailedPrecondition]
    "An answer was sent to an approval, which asks for a decision. Nothing was decided."
    "Decide it with `belay approve ID` or `belay deny ID`."

    CONTENTS_GONE Approvals 2 false [] [FailedPrecondition]
    "The contents of the approval's files are gone, because its call no longer waits for a decision."
    "`belay approvals show ID` has what was shown before; what was committed is in the workspace."

    CHANGE_NOT_FOUND Approvals 2 false [] [NotFound]
    "The approval has no such change."
    "`belay approvals show ID --all` shows every path as it must be typed; ListApprovalChanges gives the index of each change."

    TOO_MANY_REVEALS Approvals 2 false [] [ResourceExhausted]
    "1,000 changes of the approval were revealed, and an approval keeps no more of them. Nothing was revealed."
    "Decide about the approval, and let the step change less at once."

    SUBJECT_TOO_LARGE Approvals 2 false [] [FailedPrecondition]
    "The list of what a call changed is longer than 8 MiB, which no approval can show."
    "Change less in one step, or let a rule of the policy decide about these paths."

    GRANT_REFUSED Approvals 1 false [Internal] [PermissionDenied]
    "A call was approved, and the tool runner does not accept the grant: another gate signed it, it is about something else, was used before, or belongs to an older policy. Nothing was committed."
    "Start the plan again and approve again. If it repeats, compare the gate's key with the one that the runner trusts."

    APPROVAL_REFUSED Approvals 1 false [Internal] []
    "The approval gate cannot ask a person about the call: what the call changes is too much to show, or the gate does not take the request. The call was discarded, and nothing was committed."
    "The message has the gate's words. Change less in one step, or let a rule of the policy decide about these paths; then `belay executions retry ID`."

    POLICY_MISSING Approvals 1 true [] [Unavailable]
    "The tool runner has no policy yet, and runs nothing without one. It gets it from the approval gate."
    "Start the gate, and give the runner its address (`--gate`) and key (`--gate-key`). Executions wait and then continue automatically."

    UNAPPROVED_RESULT Approvals 1 false [OutcomeUnknown] []
    "The tool runner completed a call whose approval was still pending. The result is not used."
    "Look at what the call changed, and at the runner: it is broken or not Belay's own."

    STATE_DIR_UNUSABLE Stores 1 false [] []
    "The state directory cannot be created or used: not writable, owned by another user, open to others and in use for other things, or unknown because HOME is not set."
    "Name a folder of your own with `--state-dir` or `BELAY_STATE_DIR`; or `chmod 700` the named one if no other user needs it."

    STATE_DIR_MISSING Stores 2 false [] []
    "The command needs an existing state directory, and there is none at the path, or nothing was recorded in it yet. Nothing happened, and none was created."
    "Check the path that `--state-dir` or `BELAY_STATE_DIR` names. Only `belay run`, `belay serve` and an executor that drives executions create one."

    STORE_LOCKED Stores 2 true [] [Unavailable]
    "Another process uses the store. Nothing happened."
    "Stop the other process, use it as its client, or name another `--state-dir`. The lock ends with its process."

    STORE_FULL Stores 1 true [] [Unavailable]
    "The disk of the state directory is full, so nothing more can be recorded, and executions stop. What was acknowledged is kept."
    "Make room on the disk, then resume the execution or start the server again."

    STORE_CORRUPT Stores 1 false [] [DataLoss Unavailable]
    "The store or one row of it is damaged, or an execution's events do not fit together. Nothing was changed, and where the message names a row, everything else works."
    "`belay store check` names what is damaged. Keep a copy of the folder, then put a backup in its place, or move the file away to begin with an empty store; see docs/operations.md."

    BLOB_NOT_FOUND Stores 2 false [] [NotFound]
    "The execution has no blob of this name: no event of it refers to one, or the execution was deleted. From a tool runner: the call has no result with this digest."
    "Take the digest from the output of a step: `belay executions get ID --step STEP -o json`."

    BLOB_OFFSET_OUT_OF_RANGE Stores 2 false [] [OutOfRange]
    "The offset from which a blob or an artifact was to be read is after its end."
    "Read from at most its `size_bytes` on."

    ARTIFACT_NOT_FOUND Stores 2 false [] [NotFound]
    "The execution has no artifact of this name."
    "`belay artifacts list ID` lists them."

    ARTIFACT_CONTENT_NOT_KEPT Stores 2 false [] [FailedPrecondition]
    "The artifact is a file that a call committed. Belay records its path, digest and size, and keeps no copy of its content, which is in the workspace until something changes it."
    "Read the file in the workspace, and compare it with the digest. `belay artifacts lineage ID ARTIFACT` shows what it derives from."

    BLOB_DAMAGED Stores 1 false [Internal] [DataLoss]
    "The file of a value that was too large for the journal is missing or was changed; the message names it. The value was not used, nor anything in its place."
    "`belay store check` names every damaged blob. Put a backup of the folder `blobs` in its place, or start the plan again."

    STORE_FAILED Stores 1 true [] [Unavailable]
    "The store cannot be opened, read or written; the message has the system's words: a disk error, a quota, missing rights."
    "Fix what the message names, then start again. What was acknowledged is kept."

    STORE_GONE Stores 1 false [] [Unavailable]
    "The store's files were removed, moved or replaced while it was in use. The process ends and acknowledges nothing more."
    "Put the state directory back, from where it was moved or from a backup, and start again."

    STORE_BEHIND Stores 1 false [] [Unavailable]
    "A store ends before what another service has seen of it, or is another file: it was removed, cut off (its `-wal` was lost), or restored from an older backup. Nothing is acknowledged."
    "Put the newest copy back, with its `-wal`. Without one, `belay serve --accept-older-store` accepts the older store once; docs/operations.md says what is lost then."

    STORE_NEWER Stores 1 false [] [FailedPrecondition Unavailable]
    "A newer version of Belay wrote the store, or an execution in it. Nothing was changed, and such an execution is left alone."
    "Use the version that wrote it, or a later one."

    STORE_OLDER Stores 1 false [] [FailedPrecondition Unavailable]
    "An earlier, unreleased version of Belay wrote the store, or an execution in it, and this one does not read its format. Nothing was changed."
    "Finish its work with the version that wrote it, then name a new folder with `--state-dir` or move the files away."

    LEDGER_UNAVAILABLE Stores 1 true [] [Unavailable]
    "The tool runner cannot write its ledger of calls, so it starts none, and ends."
    "Make room on the runner's disk and start it again. The executor waits without using up an attempt, and the outcome of each call is found in the ledger."

    LEDGER_CHANGED Stores 1 false [OutcomeUnknown Transient] [FailedPrecondition]
    "The tool runner has another ledger than the one that had the call: its state directory was emptied or replaced."
    "Belay repeats calls that are safe to repeat. For the others, find out whether they took effect."

    FENCED Stores 1 false [] [FailedPrecondition Aborted Unavailable]
    "A newer process has taken over these executions, or the store was restored to an older state. Nothing was done."
    "Stop the old process; the new one continues. After a restore, put the newest journal.db and gate.db back."

    GATE_KEY_UNUSABLE Stores 1 false [] []
    "The key that signs policies and grants cannot be used: `gate.key` or `gate.pub` is missing, damaged, not the other's partner, or open to other users. Nothing was started."
    "Put both files back from a backup. Without one, move gate.key, gate.pub, gate.db and ledger.db away: Belay creates a new key and requests pending approvals again."

    SEAL_KEY_UNUSABLE Stores 1 false [] []
    "The key that seals secrets, `seal.key`, is damaged, cannot be read, or is open to other users. Nothing was started."
    "Set mode 0600 if no other user has read it, or restore it from a backup. Without one, executions whose secrets it sealed cannot continue."

    SEAL_KEY_LOST Stores 1 false [] [DataLoss]
    "Secrets in journal.db, or calls in ledger.db, are sealed with another key than the one in `seal.key`, or that file is missing. Nothing was started or changed."
    "Put back the `seal.key` that belongs to the stores. Without it, the store that the message names must be moved away; see docs/operations.md."

    SERVER_UNREACHABLE Servers 1 true [] []
    "No server answers at the address, or it ended before it answered."
    "Start it with the command that is shown, or correct `--server` or `BELAY_SERVER`. If it has just ended, give the command again."

    UNAUTHENTICATED Servers 2 false [] [Unauthenticated]
    "The server does not know the caller: no token over TCP, a wrong or revoked one, or a user that is bound to no principal. Nothing happened."
    "Set `BELAY_TOKEN`. The owner of the state directory adds principals with `belay principals`; the owner's token is in its file `token`."

    ROLE_MISSING Servers 2 false [] [PermissionDenied]
    "Your roles do not allow this. Nothing happened."
    "The owner of the state directory adds the role with the command that is shown; it counts from the next request on."

    PERMISSION_DENIED Servers 2 false [] [PermissionDenied]
    "The caller is not allowed to do that, or a proxy refused. Nothing happened."
    "Use the token of a principal that is allowed to."

    NOT_A_PERSON Servers 2 false [] [PermissionDenied]
    "A service made a request that only a person may make, such as a decision. Nothing happened."
    "Call as a person: at the address for people (`--listen`), with a person's token or user."

    NOT_A_SERVICE Servers 2 false [] [PermissionDenied]
    "A person, or the wrong service, made a request that is for one of Belay's services only. Nothing happened."
    "Tell the called service who calls: `--executor-user`, `--runner-user`, `--gate-user`, or their tokens; see docs/operations.md."

    PRINCIPAL_REFUSED Servers 2 false [] []
    "The change to the principals is not possible: the name exists, was revoked or is not valid, the user is bound to another one, or nothing would authenticate it."
    "`belay principals list` shows who there is."

    PRINCIPALS_UNUSABLE Servers 1 true [] [Unavailable]
    "The file of principals is damaged, has another format, or others may change it. Every request is refused, since revoked principals could not be recognized."
    "Put a backup of `principals.json` in its place, or set its mode to 0600. Without the file, only the owner may call."

    PORT_IN_USE Servers 1 true [] []
    "Another process listens at the address."
    "`ss -ltnp` names the process. Stop it, or choose another port with `--listen`; port 0 takes a free one."

    CANNOT_LISTEN Servers 1 false [] []
    "The server cannot listen at the address: it is not one of this machine, the port needs more rights, or a socket's path is too long."
    "Use an address of this machine with `--listen`, or a shorter `--state-dir`."

    INSECURE_LISTEN Servers 2 false [] []
    "The address can be reached from other machines, and the connection is not encrypted. The server did not start."
    "Listen on loopback behind a proxy that ends TLS; on a trusted network give `--insecure-listen-beyond-loopback`."

    RUNNER_UNAVAILABLE Servers 1 true [] [Unavailable]
    "The executor or the approval gate cannot reach the tool runner. Running executions wait without using up an attempt."
    "Start the runner, or correct `--runner` of the executor and of the gate. Then give the command again."

    READ_ONLY Servers 2 false [] [FailedPrecondition]
    "The server was started with `--read-only`: it shows executions and drives none, so it carries out no request that changes something or needs the tool runner. Nothing happened."
    "Send it to the executor that drives the executions of the same state directory."

    RUNNER_STOPPING Servers 1 true [] [Unavailable]
    "The tool runner is stopping and takes no calls. The executor waits for it."
    "Nothing, if it comes back; otherwise start it."

    STOPPING Servers 1 true [] [Unavailable]
    "The server is stopping and takes no requests."
    "Give the command again when it is back. Watching commands reconnect automatically."

    OVERLOADED Servers 1 true [] [ResourceExhausted]
    "The service is at its capacity. The request had no effect; steps wait without using up an attempt."
    "Send it again after the delay that the error carries."

    LIMIT_REACHED Servers 1 true [] [ResourceExhausted]
    "The service has as many executions, calls, approvals or watchers as the operator's settings allow at once. The request had no effect; steps wait without using up an attempt."
    "Send it again after the delay that the error carries. If it stays so, raise the setting that the message names, decide what waits for approval, or start less at once."

    MESSAGE_TOO_LARGE Servers 1 false [] [ResourceExhausted]
    "The request's message is larger than the 16 MiB that a service reads. The request had no effect."
    "Name files instead of their content, or split the plan."

    MESSAGE_MALFORMED Servers 2 false [] [InvalidArgument]
    "The request's message is not the protobuf message of the method. Nothing happened."
    "Generate the client from `proto/belay/v1`; reflection shows what the service takes."

    UNKNOWN_FIELD Servers 2 false [] [InvalidArgument]
    "The request has a field, or a value of an enum, that the server does not know: the client is newer than the server. Nothing happened, because the part that the server would have ignored may be the one that matters."
    "Upgrade the server, or leave the field out. The message names the field's number, or the values that the server knows, and both revisions of the contract; docs/compatibility.md has the rules."

    REPLY_NOT_UNDERSTOOD Internal 1 true [] [Internal]
    "The tool runner or the approval gate replied with what the executor does not know, such as a state that a newer version added. The executor concludes nothing from it, and asks again."
    "Upgrade the executor to the version of the other services. If it has that version, the runner is another one than Belay's and replies with less than the contract requires: look at the executor's log."

    CALL_EXISTS Internal 2 false [Internal] [AlreadyExists]
    "The runner has another call of this name. It was not run: two executors with different stores use one runner, or a store was restored."
    "Give each executor its own runner, or start the runner with an empty state directory after restoring an old backup."

    CALL_NOT_FOUND Internal 2 false [] [NotFound]
    "The runner never received this call. The executor sends it."
    "Nothing."

    CALL_NOT_HELD Internal 2 false [] [FailedPrecondition]
    "The call does not wait for approval at the tool runner: it has ended, or executor and gate use different runners."
    "Nothing. If it repeats, give `--runner` the same address at the executor and at the gate."

    CALL_ACKNOWLEDGED Internal 2 false [Internal OutcomeUnknown] [FailedPrecondition]
    "The tool runner remembers a call of this name that has ended and whose outcome was acknowledged, and does not run it again. A call of a new execution with a name that was used before waits until the runner has forgotten the earlier one, at most 10 minutes."
    "Nothing while a step waits with it. A step that fails with it has not run its call: start the execution with another id. If the outcome is unknown, find out what the call did, and resolve the step."

    NOT_APPROVED Internal 2 false [] [FailedPrecondition]
    "A grant was requested, and no valid approval exists: it is pending, denied, skipped, expired, or its subject has changed."
    "Nothing: the executor asks again after a decision."

    GRANT_SPENT Internal 2 false [] [PermissionDenied]
    "A grant was presented a second time. Nothing was done."
    "Ask for a new approval. If no store was restored, check who can reach the runner."

    SUBJECT_CHANGED Internal 2 true [] [FailedPrecondition]
    "The subject that the tool runner holds for a call is not the one that the executor asked about. No person was asked."
    "Nothing: the executor asks about what the runner holds now. If it repeats, look at the executor."

    SUBJECT_INVALID Internal 2 false [] [FailedPrecondition]
    "The subject that the tool runner holds for a call cannot be read, or is about another call. No person was asked."
    "Use the same version of Belay everywhere, and report it if you do."

    CONTENT_MISMATCH Internal 2 false [] [FailedPrecondition]
    "The tool runner sent file content whose digest is not the one in the approval. No person was asked."
    "Look at the tool runner and what lies between it and the gate: something is damaged or hostile."

    INTERNAL Grpc 1 false [Internal] [Internal]
    "A fault of Belay or of the machine, or, as a bare gRPC code, of a proxy. What was recorded is kept."
    "Report it with what `BELAY_LOG=debug` prints."

    ABORTED Grpc 1 true [] [Aborted]
    "The request collided with another one."
    "Give the command again."

    ALREADY_EXISTS Grpc 2 false [] [AlreadyExists]
    "The resource to create exists already."
    "Choose another name, or use what exists."

    DATA_LOSS Grpc 1 false [] [DataLoss]
    "Something that was stored cannot be read."
    "See `belay explain STORE_CORRUPT`."

    DEADLINE_EXCEEDED Grpc 1 true [] [DeadlineExceeded]
    "The server did not answer in time. It may have done what was asked."
    "Look with `belay executions list` before you repeat it. With `--request-id`, repeating `run` is safe."

    FAILED_PRECONDITION Grpc 2 false [] [FailedPrecondition]
    "The request does not fit the present state. Nothing happened."
    "The message says what is missing."

    NOT_FOUND Grpc 2 false [] [NotFound]
    "The resource does not exist."
    "`belay executions list` shows the executions; check `--namespace`."

    OUT_OF_RANGE Grpc 2 false [] [OutOfRange]
    "A number lies outside the valid range."
    "Use one from the range that the message names."

    RESOURCE_EXHAUSTED Grpc 1 true [] [ResourceExhausted]
    "A limit of the server or of a proxy was reached."
    "Wait and give the command again."

    UNAVAILABLE Grpc 1 true [] [Unavailable]
    "The server cannot be reached now, or cannot answer."
    "Give the command again; `belay serve` starts a server."

    UNIMPLEMENTED Grpc 1 false [] [Unimplemented]
    "The server does not know the request: it is older, or another service, such as a tool runner instead of an executor."
    "Check the address, and use the same version on both sides."

    UNKNOWN Grpc 1 false [] [Unknown]
    "A proxy between the command and the server answered with an unexplained error."
    "Read the proxy's log; the address may not be Belay's."
}
