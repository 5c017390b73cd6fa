//! Checks of an expression before its values are known.

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, LiteralValue, operators},
};

use crate::{ConditionError, MAX_PARTS};

/// The functions, with how many arguments they have, the one that they are called on included.
pub(crate) const FUNCTIONS: [(&str, usize); 9] = [
    ("size", 1),
    ("contains", 2),
    ("startsWith", 2),
    ("endsWith", 2),
    ("matches", 2),
    ("int", 1),
    ("double", 1),
    ("string", 1),
    ("bool", 1),
];

/// The operators, which the parser writes as functions.
const OPERATORS: [&str; 17] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
];

/// Checks that an expression can be evaluated, and can be true or false.
pub(crate) fn check(expression: &IdedExpr, variables: &[&str]) -> Result<(), ConditionError> {
    let mut known: Vec<&str> = variables.to_vec();
    names(expression, &mut known, &mut 0)?;
    match never_boolean(&expression.expr) {
        Some(what) => {
            Err(ConditionError::Refused(format!("is {what}, and has to be true or false: compare it with something")))
        }
        None => Ok(()),
    }
}

fn refused<T>(message: String) -> Result<T, ConditionError> {
    Err(ConditionError::Refused(message))
}

/// Checks every name in an expression, in which `known` are known, and counts its parts.
fn names<'e>(expression: &'e IdedExpr, known: &mut Vec<&'e str>, parts: &mut usize) -> Result<(), ConditionError> {
    *parts += 1;
    if *parts > MAX_PARTS {
        return refused(format!("has more than {MAX_PARTS} parts: let a step compute some of it"));
    }
    match &expression.expr {
        Expr::Unspecified => refused("is empty".to_owned()),
        Expr::Ident(name) if known.contains(&name.as_str()) => Ok(()),
        Expr::Ident(name) => refused(format!(
            "`{name}` is not known: the result of a step is written `${{{name}.result}}`, and text in quotes"
        )),
        Expr::Literal(LiteralValue::Bytes(_)) => refused("has bytes, which JSON does not know: write text".to_owned()),
        Expr::Literal(_) => Ok(()),
        Expr::Struct(message) => {
            refused(format!("makes a `{}`, and there are no messages: write a map", message.type_name))
        }
        Expr::Select(select) => names(&select.operand, known, parts),
        Expr::List(list) => list.elements.iter().try_for_each(|element| names(element, known, parts)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                names(&entry.key, known, parts).and_then(|()| names(&entry.value, known, parts))
            }
            EntryExpr::StructField(field) => names(&field.value, known, parts),
        }),
        Expr::Call(call) => {
            let count = call.args.len() + usize::from(call.target.is_some());
            let name = call.func_name.as_str();
            let is_internal =
                OPERATORS.contains(&name) || [operators::IN, operators::NOT_STRICTLY_FALSE].contains(&name);
            match FUNCTIONS.iter().find(|(function, _)| *function == name) {
                _ if is_internal => {}
                None => {
                    let all = FUNCTIONS.map(|(name, _)| name).join(", ");
                    return refused(format!("there is no function `{name}`; there are {all}"));
                }
                Some((_, wanted)) if *wanted != count => {
                    return refused(format!("`{name}` is called with {count} values, and takes {wanted}"));
                }
                Some(_) => {}
            }
            call.target.iter().try_for_each(|target| names(target, known, parts))?;
            call.args.iter().try_for_each(|argument| names(argument, known, parts))
        }
        Expr::Comprehension(each) => {
            names(&each.iter_range, known, parts)?;
            names(&each.accu_init, known, parts)?;
            let before = known.len();
            known.extend([each.accu_var.as_str(), each.iter_var.as_str()]);
            known.extend(each.iter_var2.as_deref());
            let inner = [&each.loop_cond, &each.loop_step, &each.result];
            let checked = inner.into_iter().try_for_each(|part| names(part, known, parts));
            known.truncate(before);
            checked
        }
    }
}

/// The kind of an expression that is never true or false; `None` when it can be.
fn never_boolean(expression: &Expr) -> Option<&'static str> {
    match expression {
        Expr::Literal(LiteralValue::Boolean(_)) => None,
        Expr::Literal(LiteralValue::String(_)) => Some("text"),
        Expr::Literal(LiteralValue::Null) => Some("null"),
        Expr::Literal(_) => Some("a number"),
        Expr::List(_) => Some("a list"),
        Expr::Map(_) | Expr::Struct(_) => Some("a map"),
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD => Some("a sum"),
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO | operators::NEGATE => {
                Some("a number")
            }
            "size" | "int" | "double" => Some("a number"),
            "string" => Some("text"),
            operators::CONDITIONAL => call.args.iter().skip(1).find_map(|branch| never_boolean(&branch.expr)),
            _ => None,
        },
        // `map` and `filter` begin with an empty list, and end with it.
        Expr::Comprehension(each) => match (&each.accu_init.expr, &each.result.expr) {
            (Expr::List(_), Expr::Ident(_)) => Some("a list"),
            _ => None,
        },
        Expr::Unspecified | Expr::Ident(_) | Expr::Select(_) => None,
    }
}
