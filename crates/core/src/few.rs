//! One thing, or several: a list that allocates only when it holds more than one.
//!
//! Nearly every ask is one check, and the hot path must not pay a heap allocation to say "one".
//! `smallvec` would do the same with `unsafe`; this is all we need of it.

use std::ops::Deref;

/// A list whose single element lives in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Few<T> {
    /// Exactly one element, no allocation.
    One(T),
    /// Any number of elements, none included.
    Many(Vec<T>),
}

impl<T> Few<T> {
    /// Applies `f` to each element, keeping the shape.
    #[inline]
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> Few<U> {
        match self {
            Few::One(one) => Few::One(f(one)),
            Few::Many(many) => Few::Many(many.iter().map(f).collect()),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Few::One(one) => std::slice::from_ref(one),
            Few::Many(many) => many,
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        let Some(first) = items.next() else { return Few::Many(Vec::new()) };
        let Some(second) = items.next() else { return Few::One(first) };
        let mut many = Vec::with_capacity(items.size_hint().0.saturating_add(2));
        many.push(first);
        many.push(second);
        many.extend(items);
        Few::Many(many)
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        match self {
            Few::One(one) => Some(one).into_iter().chain(Vec::new()),
            Few::Many(many) => None.into_iter().chain(many),
        }
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
