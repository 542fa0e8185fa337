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
    pub(super) attributes: RawAttributes<'a>,
    pub(super) fault: Option<Fault<'a>>,
}

/// What is known of a call, as written.
#[derive(Debug, Default, PartialEq)]
pub(super) enum RawAttributes<'a> {
    /// Not there, or null.
    #[default]
    Absent,
    /// At most [`ATTRIBUTES_MAX`], each with its name.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
    /// More than that: so many.
    TooMany(usize),
    /// Not an object.
    Other(&'static str),
}

/// The most attributes of one check.
pub(super) const ATTRIBUTES_MAX: usize = 128;

/// The most asks of one body.
pub(super) const ASKS_MAX: usize = 128;

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
    pub(super) checks: Option<RawList<RawCheck<'a>>>,
    /// Several asks, each answered by itself, if there are.
    pub(super) asks: Option<RawList<RawAsk<'a>>>,
}

/// A list, as written.
#[derive(Debug, PartialEq)]
pub(super) enum RawList<T> {
    /// No more than there may be.
    List(Vec<T>),
    /// More than that: so many.
    TooMany(usize),
    /// Not a list.
    Other(&'static str),
}

/// What can stand in a list.
trait Item {
    /// The most of them.
    const MAX: usize;
}

impl Item for RawCheck<'_> {
    const MAX: usize = WANTS_MAX;
}

impl Item for RawAsk<'_> {
    const MAX: usize = ASKS_MAX;
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

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and within bounds")]
    fn visit_f64<E>(self, number: f64) -> Result<Value<'de>, E> {
        // JSON knows one kind of number: 5.0 is 5.
        if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) {
            return Ok(Value::Whole(number as u64));
        }
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
        if name == "attributes" {
            let attributes = entries.next_value()?;
            if std::mem::replace(&mut self.attributes, attributes) != RawAttributes::Absent {
                self.fault.get_or_insert(Fault::Twice("attributes"));
            }
            return Ok(());
        }
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
            let is_twice = match &*name {
                "checks" => ask.checks.replace(entries.next_value()?).is_some().then_some("checks"),
                "asks" => ask.asks.replace(entries.next_value()?).is_some().then_some("asks"),
                _ => {
                    ask.check.read(name, &mut entries)?;
                    None
                }
            };
            if let Some(name) = is_twice {
                ask.check.fault.get_or_insert(Fault::Twice(name));
            }
        }
        Ok(ask)
    }

    fn not_an_object(what: &'static str) -> Self {
        RawAsk { check: RawCheck::not_an_object(what), checks: None, asks: None }
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

impl<'de, T: Item + Deserialize<'de>> Deserialize<'de> for RawList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(std::marker::PhantomData))
    }
}

struct ListVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Item + Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = RawList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawList<T>, A::Error> {
        let mut list = Vec::new();
        while list.len() < T::MAX {
            match items.next_element()? {
                Some(item) => list.push(item),
                None => return Ok(RawList::List(list)),
            }
        }
        let mut count = list.len();
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(if count > T::MAX { RawList::TooMany(count) } else { RawList::List(list) })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<RawList<T>, A::Error> {
        ValueVisitor.visit_map(entries).map(|_| RawList::Other("an object"))
    }

    fn visit_unit<E>(self) -> Result<RawList<T>, E> {
        Ok(RawList::Other("null"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawList<T>, E> {
        Ok(RawList::Other("true or false"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawList<T>, E> {
        Ok(RawList::Other("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawList<T>, E> {
        Ok(RawList::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawList<T>, E> {
        Ok(RawList::Other("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<RawList<T>, E> {
        Ok(RawList::Other("text"))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawAttributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AttributesVisitor)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = RawAttributes<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawAttributes<'de>, A::Error> {
        let mut attributes = Vec::new();
        while let Some(Name(name)) = entries.next_key()? {
            if attributes.len() < ATTRIBUTES_MAX {
                attributes.push((name, entries.next_value()?));
                continue;
            }
            entries.next_value::<IgnoredAny>()?;
            let mut count = ATTRIBUTES_MAX + 1;
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                count += 1;
            }
            return Ok(RawAttributes::TooMany(count));
        }
        Ok(RawAttributes::Map(attributes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<RawAttributes<'de>, A::Error> {
        ValueVisitor.visit_seq(items).map(|_| RawAttributes::Other("a list"))
    }

    fn visit_unit<E>(self) -> Result<RawAttributes<'de>, E> {
        Ok(RawAttributes::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawAttributes<'de>, E> {
        Ok(RawAttributes::Other("true or false"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawAttributes<'de>, E> {
        Ok(RawAttributes::Other("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawAttributes<'de>, E> {
        Ok(RawAttributes::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawAttributes<'de>, E> {
        Ok(RawAttributes::Other("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<RawAttributes<'de>, E> {
        Ok(RawAttributes::Other("text"))
    }
}
