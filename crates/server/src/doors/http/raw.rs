//! A request body as it is written: every field of any type, borrowed from the bytes where it can be.
//!
//! Derived deserialisers stop at the first wrong type and cannot say where in a list it stood. Here a
//! wrong type is a value like any other, so `decode` can name the field and what it should have been.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tollgate::core::ask::WANTS_MAX;

/// One value of a field.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Value<'a> {
    /// Not there, or null.
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Whole(u64),
    /// Anything else, by what it is.
    Other(&'static str),
}

/// One check, as written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RawCheck<'a> {
    pub(super) rule: Value<'a>,
    pub(super) key: Value<'a>,
    pub(super) cost: Value<'a>,
    pub(super) limit: Value<'a>,
    pub(super) burst: Value<'a>,
    pub(super) algorithm: Value<'a>,
    pub(super) time_zone: Value<'a>,
    pub(super) take: Value<'a>,
    pub(super) fault: Option<Fault<'a>>,
}

/// What is wrong with an object before its fields are looked at.
#[derive(Debug, PartialEq)]
pub(super) enum Fault<'a> {
    /// Not an object at all.
    NotAnObject(&'static str),
    /// A field we do not know.
    Unknown(Cow<'a, str>),
    /// A field written twice.
    Twice(&'static str),
}

/// A body, as written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RawAsk<'a> {
    /// The fields of the body itself.
    pub(super) check: RawCheck<'a>,
    /// The list, if there is one.
    pub(super) checks: Option<RawChecks<'a>>,
}

/// A list of checks, as written.
#[derive(Debug, PartialEq)]
pub(super) enum RawChecks<'a> {
    /// At most [`WANTS_MAX`].
    List(Vec<RawCheck<'a>>),
    /// More than that: so many.
    TooMany(usize),
    /// Not a list.
    Other(&'static str),
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value<'de>, E> {
        Ok(Value::Other("true or false"))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value::Whole(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<'de>, E> {
        Ok(Value::Other("a negative number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value<'de>, E> {
        Ok(Value::Other("a number that is not whole, or too large"))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value<'de>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value<'de>, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other("an object"))
    }
}

/// A field's name, borrowed where it can be.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

impl<'a> RawCheck<'a> {
    /// Reads one field's value into its place, or notes what is wrong with the field.
    fn read<A: MapAccess<'a>>(&mut self, name: Cow<'a, str>, entries: &mut A) -> Result<(), A::Error> {
        let (name, place) = match &*name {
            "rule" => ("rule", &mut self.rule),
            "key" => ("key", &mut self.key),
            "cost" => ("cost", &mut self.cost),
            "limit" => ("limit", &mut self.limit),
            "burst" => ("burst", &mut self.burst),
            "algorithm" => ("algorithm", &mut self.algorithm),
            "time_zone" => ("time_zone", &mut self.time_zone),
            "take" => ("take", &mut self.take),
            _ => {
                entries.next_value::<IgnoredAny>()?;
                self.fault.get_or_insert(Fault::Unknown(name));
                return Ok(());
            }
        };
        let value = entries.next_value()?;
        if *place != Value::Absent {
            self.fault.get_or_insert(Fault::Twice(name));
        }
        *place = value;
        Ok(())
    }

    fn not_an_object(what: &'static str) -> RawCheck<'a> {
        RawCheck { fault: Some(Fault::NotAnObject(what)), ..RawCheck::default() }
    }
}

/// Visits an object as `T`, and anything else as `T` with a fault.
struct ObjectVisitor<T>(std::marker::PhantomData<T>);

trait FromObject<'a>: Sized {
    fn from_object<A: MapAccess<'a>>(entries: A) -> Result<Self, A::Error>;
    fn not_an_object(what: &'static str) -> Self;
}

impl<'a> FromObject<'a> for RawCheck<'a> {
    fn from_object<A: MapAccess<'a>>(mut entries: A) -> Result<Self, A::Error> {
        let mut check = RawCheck::default();
        while let Some(Name(name)) = entries.next_key()? {
            check.read(name, &mut entries)?;
        }
        Ok(check)
    }

    fn not_an_object(what: &'static str) -> Self {
        RawCheck::not_an_object(what)
    }
}

impl<'a> FromObject<'a> for RawAsk<'a> {
    fn from_object<A: MapAccess<'a>>(mut entries: A) -> Result<Self, A::Error> {
        let mut ask = RawAsk::default();
        while let Some(Name(name)) = entries.next_key()? {
            if name != "checks" {
                ask.check.read(name, &mut entries)?;
            } else if ask.checks.replace(entries.next_value()?).is_some() {
                ask.check.fault.get_or_insert(Fault::Twice("checks"));
            }
        }
        Ok(ask)
    }

    fn not_an_object(what: &'static str) -> Self {
        RawAsk { check: RawCheck::not_an_object(what), checks: None }
    }
}

impl<'de, T: FromObject<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        T::from_object(entries)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        ValueVisitor.visit_seq(items).map(|_| T::not_an_object("a list"))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::not_an_object("null"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::not_an_object("true or false"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<T, E> {
        Ok(T::not_an_object("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::not_an_object("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::not_an_object("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<T, E> {
        Ok(T::not_an_object("text"))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawCheck<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor::<RawCheck<'de>>(std::marker::PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawAsk<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor::<RawAsk<'de>>(std::marker::PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawChecks<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = RawChecks<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of checks")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawChecks<'de>, A::Error> {
                let mut list = Vec::new();
                while list.len() < WANTS_MAX {
                    match items.next_element()? {
                        Some(check) => list.push(check),
                        None => return Ok(RawChecks::List(list)),
                    }
                }
                let mut count = list.len();
                while items.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(if count > WANTS_MAX { RawChecks::TooMany(count) } else { RawChecks::List(list) })
            }
            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<RawChecks<'de>, A::Error> {
                ValueVisitor.visit_map(entries).map(|_| RawChecks::Other("an object"))
            }
            fn visit_unit<E>(self) -> Result<RawChecks<'de>, E> {
                Ok(RawChecks::Other("null"))
            }
            fn visit_bool<E>(self, _: bool) -> Result<RawChecks<'de>, E> {
                Ok(RawChecks::Other("true or false"))
            }
            fn visit_u64<E>(self, _: u64) -> Result<RawChecks<'de>, E> {
                Ok(RawChecks::Other("a number"))
            }
            fn visit_i64<E>(self, _: i64) -> Result<RawChecks<'de>, E> {
                Ok(RawChecks::Other("a number"))
            }
            fn visit_f64<E>(self, _: f64) -> Result<RawChecks<'de>, E> {
                Ok(RawChecks::Other("a number"))
            }
            fn visit_str<E>(self, _: &str) -> Result<RawChecks<'de>, E> {
                Ok(RawChecks::Other("text"))
            }
        }
        deserializer.deserialize_any(ListVisitor)
    }
}
