//! The file as it is written: a tree of values, each with its line and column. Nothing here has been
//! believed yet.
//!
//! A tree, and not structs with `deny_unknown_fields`, because serde stops at the first unknown field
//! or wrong type, and a configuration must be refused with every problem at once. This is the only
//! file that knows which YAML library we use.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::problems::{Place, Problems};

/// The most nodes a file may have, aliases expanded: an alias bomb ends here.
const NODES_MAX: usize = 1_000_000;

/// One value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) place: Place,
    pub(super) node: Node,
}

/// One value.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Whole(u64),
    /// A number that is negative or broken.
    OtherNumber,
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(Field, Tree)>),
}

/// A field's name and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) place: Place,
}

impl Tree {
    /// Reads a file. What is not YAML is one problem, with its place.
    pub(super) fn parse(text: &str, problems: &mut Problems) -> Option<Tree> {
        let mut options = serde_saphyr::Options::default();
        options.with_snippet = false;
        // Only true and false are truths: `off` closes a door.
        options.strict_booleans = true;
        if let Some(budget) = &mut options.budget {
            budget.max_nodes = NODES_MAX;
        }
        match serde_saphyr::from_str_with_options::<Option<Tree>>(text, options) {
            Ok(Some(tree)) => Some(tree),
            // An empty file, or nothing but comments: it has no fields.
            Ok(None) => Some(Tree { place: Place::File { line: 1, column: 1 }, node: Node::Map(Vec::new()) }),
            Err(error) => {
                let place = error.location().map_or(Place::File { line: 1, column: 1 }, |at| Place::File {
                    line: at.line(),
                    column: at.column(),
                });
                problems.add(place, "", format!("not readable as YAML: {}", error.without_snippet()));
                None
            }
        }
    }

    /// Puts a value at a path of fields, in the place of any other.
    pub(super) fn set(&mut self, path: &[&str], place: Place, node: Node) {
        let Some((first, rest)) = path.split_first() else {
            *self = Tree { place, node };
            return;
        };
        if !self.is_map() {
            self.node = Node::Map(Vec::new());
        }
        let Node::Map(fields) = &mut self.node else { return };
        let at = fields.iter().position(|(field, _)| field.name == **first).unwrap_or_else(|| {
            fields.push((Field { name: (*first).to_owned(), place }, Tree { place, node: Node::Null }));
            fields.len() - 1
        });
        fields[at].1.set(rest, place, node);
    }

    /// Whether this is a mapping.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.node, Node::Map(_))
    }

    /// What kind of value this is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self.node {
            Node::Null => "nothing",
            Node::Bool(_) => "true or false",
            Node::Whole(_) | Node::OtherNumber => "a number",
            Node::Text(_) => "text",
            Node::List(_) => "a list",
            Node::Map(_) => "a mapping",
        }
    }
}

fn place_of<T>(spanned: &Spanned<T>) -> Place {
    Place::File { line: spanned.referenced.line(), column: spanned.referenced.column() }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Tree { place: place_of(&spanned), node: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(u64::try_from(value).map_or(Node::OtherNumber, Node::Whole))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::OtherNumber)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::OtherNumber)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::OtherNumber)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(name) = entries.next_key::<Spanned<String>>()? {
            let field = Field { place: place_of(&name), name: name.value };
            map.push((field, entries.next_value()?));
        }
        Ok(Node::Map(map))
    }
}
