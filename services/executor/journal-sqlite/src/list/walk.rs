//! A set of executions that an index finds, and the statements that read it.

use belay_journal::{Condition, OrderBy};
use rusqlite::types::Value;

use super::sql_filter::SqlFilter;
use crate::rows::COLUMNS;

/// A set of executions that an index finds.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// The table and its index.
    pub(super) table: String,
    /// The conditions that the index serves.
    pub(super) condition: String,
    /// The values of its parameters, the first ones of the statement.
    pub(super) values: Vec<Value>,
    /// The column that it is sorted by, then by key.
    pub(super) time: &'static str,
    /// The column of the key.
    key: &'static str,
    /// The order that it is in; `None` when it is in the order of ids.
    pub(super) order: Option<OrderBy>,
}

impl Walk {
    /// Everything, in the order of the list.
    pub(super) fn everything(order: OrderBy) -> Self {
        let (index, condition, time) = match order {
            OrderBy::CreateTime => ("execution_created", "1", "created_at"),
            OrderBy::EndTime => ("execution_ended", "ended_at IS NOT NULL", "ended_at"),
        };
        let (table, condition) = (format!("execution INDEXED BY {index}"), condition.to_owned());
        Self { table, condition, values: Vec::new(), time, key: "exec", order: Some(order) }
    }

    /// The executions that carry out the plans of steps, or the others, in the order of the list.
    pub(super) fn by_kind(namespace: &str, has_parent: bool, order: OrderBy) -> Self {
        let values = vec![namespace.to_owned().into(), has_parent.into()];
        Self::indexed("execution_kind", "(parent IS NOT NULL) = ?2", values, order)
    }

    /// The executions of a namespace, the first value, that an index finds in the order of the list: one of two, whose names differ in the order.
    fn indexed(index: &str, condition: &str, values: Vec<Value>, order: OrderBy) -> Self {
        let (suffix, has_ended, time) = match order {
            OrderBy::CreateTime => ("", "", "created_at"),
            OrderBy::EndTime => ("_ended", " AND ended_at IS NOT NULL", "ended_at"),
        };
        let table = format!("execution INDEXED BY {index}{suffix}");
        let condition = format!("namespace = ?1 AND {condition}{has_ended}");
        Self { table, condition, values, time, key: "exec", order: Some(order) }
    }

    pub(super) fn by_column(namespace: &str, column: &str, value: Value, has_parent: bool, order: OrderBy) -> Self {
        let (index, order) = match column {
            "state" => ("execution_state", order),
            // What has ended waits for nothing.
            "waits_for" => ("execution_waits", OrderBy::CreateTime),
            "plan_id" => ("execution_plan", order),
            _ => ("execution_failure", order),
        };
        let is_set = if column == "failure_reason" { " AND failure_reason IS NOT NULL" } else { "" };
        let values = vec![namespace.to_owned().into(), value, has_parent.into()];
        Self::indexed(index, &format!("{column} = ?2 AND (parent IS NOT NULL) = ?3{is_set}"), values, order)
    }

    pub(super) fn by_labels_or_id(namespace: &str, condition: &Condition, order: OrderBy) -> Option<Self> {
        let namespace = Value::from(namespace.to_owned());
        match condition {
            Condition::Label(true, key, value) => {
                let index = match order {
                    OrderBy::CreateTime => "",
                    OrderBy::EndTime => " INDEXED BY label_ended",
                };
                let values = vec![namespace, key.clone().into(), value.clone().into()];
                Some(Self::labelled(index, "label.key = ?2 AND label.value = ?3", values, order))
            }
            Condition::HasLabel(key) => {
                let values = vec![namespace, key.clone().into()];
                Some(Self::labelled(" INDEXED BY label_key", "label.key = ?2", values, OrderBy::CreateTime))
            }
            Condition::Parent(id) => {
                let values = vec![namespace, id.clone().into()];
                Some(Self::indexed("execution_children", "parent_id = ?2", values, OrderBy::CreateTime))
            }
            Condition::Id(true, id) => Some(Self {
                table: "execution".to_owned(),
                condition: "namespace = ?1 AND id = ?2".to_owned(),
                values: vec![namespace, id.clone().into()],
                time: if order == OrderBy::EndTime { "ended_at" } else { "created_at" },
                key: "exec",
                order: Some(order),
            }),
            Condition::IdPrefix(prefix) => Some(Self {
                table: "execution".to_owned(),
                condition: "namespace = ?1 AND id >= ?2 AND id < ?3".to_owned(),
                // Ids are ASCII.
                values: vec![namespace, prefix.clone().into(), format!("{prefix}\u{7f}").into()],
                time: "created_at",
                key: "exec",
                order: None,
            }),
            _ => None,
        }
    }

    fn labelled(index: &str, condition: &str, values: Vec<Value>, order: OrderBy) -> Self {
        let (has_ended, time) = match order {
            OrderBy::CreateTime => ("", "label.created_at"),
            OrderBy::EndTime => (" AND label.ended_at IS NOT NULL", "label.ended_at"),
        };
        let condition = format!("label.namespace = ?1 AND {condition}{has_ended}");
        Self { table: format!("label{index}"), condition, values, time, key: "label.exec", order: Some(order) }
    }

    /// Restricts the walk to a time range of the column by which it is sorted.
    pub(super) fn within(mut self, least: i64, most: i64) -> Self {
        let (first, second) = (self.values.len() + 1, self.values.len() + 2);
        self.condition.push_str(&format!(" AND {} BETWEEN ?{first} AND ?{second}", self.time));
        self.values.extend([least.into(), most.into()]);
        self
    }

    /// The tables that have the rows.
    pub(super) fn rows(&self) -> String {
        match self.time.starts_with("label.") {
            true => format!("{} JOIN execution USING (exec)", self.table),
            false => self.table.clone(),
        }
    }

    /// The statement that reads executions between two positions, at most so many, and passes over those that do not match what it is narrowed by. Its last
    /// five parameters are these positions and this number.
    pub(super) fn select(&self, filter: &SqlFilter, descending: bool) -> String {
        let narrowing = filter.conditions(self.values.len() + 1);
        let first = self.values.len() + filter.values.len() + 1;
        format!(
            "SELECT {} FROM {} WHERE {}{narrowing} {} LIMIT ?{}",
            *COLUMNS,
            self.rows(),
            self.condition,
            self.between(first, descending),
            first + 4
        )
    }

    /// The statement that reads, from the index alone, the position of the execution that follows so many others between two positions. Its last five
    /// parameters are these positions and this number.
    pub(super) fn skip(&self, descending: bool) -> String {
        let Self { table, condition, time, key, .. } = self;
        let first = self.values.len() + 1;
        let between = self.between(first, descending);
        format!("SELECT {time}, {key} FROM {table} WHERE {condition} {between} LIMIT 1 OFFSET ?{}", first + 4)
    }

    /// Between two positions, in the order of the list; the first parameter is this one.
    fn between(&self, first: usize, descending: bool) -> String {
        let Self { time, key, .. } = self;
        let [second, third, fourth] = [first + 1, first + 2, first + 3];
        let direction = if descending { "DESC" } else { "ASC" };
        format!(
            "AND ({time}, {key}) > (?{first}, ?{second}) AND ({time}, {key}) < (?{third}, ?{fourth})
             ORDER BY {time} {direction}, {key} {direction}"
        )
    }
}
