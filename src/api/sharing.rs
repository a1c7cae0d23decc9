//! Values and texts that equal owners share, so that thousands of cached objects have them once.

use std::{
    borrow::{Borrow, Cow},
    collections::BTreeMap,
    fmt, mem,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is copied when one of its owners changes it. It is written and read like the value.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedValue<T>(Arc<T>);

impl<T> Clone for SharedValue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> SharedValue<T> {
    /// Number of its owners.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl<T: PartialEq> SharedValue<T> {
    /// Becomes an owner of the other value if both are equal. False if they differ.
    pub fn share(&mut self, other: &Self) -> bool {
        let is_same = self == other;
        if is_same {
            self.0 = Arc::clone(&other.0);
        }
        is_same
    }
}

impl<T> Deref for SharedValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for SharedValue<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<T> for SharedValue<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: PartialEq> PartialEq for SharedValue<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: JsonSchema> JsonSchema for SharedValue<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A text that its owners cannot change. It is written and read like a string.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedText(Arc<str>);

impl SharedText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Number of its owners.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SharedText {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl PartialEq<str> for SharedText {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl PartialEq<String> for SharedText {
    fn eq(&self, other: &String) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Texts by their key, for maps with a few entries that rarely change: it needs a third of the memory of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMap(Box<[(SharedText, SharedText)]>);

impl TextMap {
    /// The text with a key.
    pub fn get(&self, key: &str) -> Option<&SharedText> {
        self.0.get(self.place(key).ok()?).map(|(_, text)| text)
    }

    /// There is a text with this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// There are no texts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All keys with their texts, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&SharedText, &SharedText)> {
        self.0.iter().map(|(key, text)| (key, text))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &SharedText> {
        self.iter().map(|(key, _)| key)
    }

    /// Sets the text of a key. Returns the text that it had before.
    pub fn insert(&mut self, key: impl Into<SharedText>, text: impl Into<SharedText>) -> Option<SharedText> {
        let (key, text) = (key.into(), text.into());
        match self.place(&key) {
            Ok(place) => self.0.get_mut(place).map(|(_, known)| mem::replace(known, text)),
            Err(place) => {
                let mut entries = mem::take(&mut self.0).into_vec();
                entries.insert(place, (key, text));
                self.0 = entries.into_boxed_slice();
                None
            }
        }
    }

    /// Removes a key. Returns the text that it had.
    pub fn remove(&mut self, key: &str) -> Option<SharedText> {
        let place = self.place(key).ok()?;
        let mut entries = mem::take(&mut self.0).into_vec();
        let (_, text) = entries.remove(place);
        self.0 = entries.into_boxed_slice();
        Some(text)
    }

    /// All keys and texts, so that equal ones can be shared.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut SharedText> {
        self.0.iter_mut().flat_map(|(key, text)| [key, text])
    }

    /// The place of a key. The error is the place at which it belongs.
    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(key))
    }
}

impl<K: Into<SharedText>, T: Into<SharedText>> FromIterator<(K, T)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (K, T)>>(entries: I) -> Self {
        let map: BTreeMap<SharedText, SharedText> =
            entries.into_iter().map(|(key, text)| (key.into(), text.into())).collect();
        Self(map.into_iter().collect())
    }
}

impl From<BTreeMap<String, String>> for TextMap {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(map.into_iter().map(|(key, text)| (key.into(), text.into())).collect())
    }
}

impl From<&TextMap> for BTreeMap<String, String> {
    fn from(map: &TextMap) -> Self {
        map.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect()
    }
}

impl Serialize for TextMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<SharedText, SharedText>::deserialize(deserializer)?;
        Ok(Self(map.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_are_shared_and_a_change_of_one_leaves_the_other() {
        let (mut one, other) = (SharedValue::from(vec![1]), SharedValue::from(vec![1]));
        assert!(one.share(&other) && other.owners() == 2);
        assert!(!one.share(&SharedValue::from(vec![2])));
        one.push(2);
        assert_eq!((&*one, &*other, other.owners()), (&vec![1, 2], &vec![1], 1));
        assert_eq!(json!(one), json!([1, 2]));
        assert_eq!(serde_json::from_value::<SharedValue<Vec<i32>>>(json!([1, 2])).unwrap(), one);
    }

    #[test]
    fn a_text_is_compared_and_written_as_a_string() {
        let text: SharedText = serde_json::from_value(json!("a")).unwrap();
        let (owned, later) = ("a".to_owned(), SharedText::from("b"));
        assert!(text == "a" && text == *"a" && text == owned && text < later);
        assert_eq!((json!(text), format!("{text} {text:?} {text:2}|")), (json!("a"), "a \"a\" a |".to_owned()));
    }

    #[test]
    fn a_map_of_texts_is_written_and_read_as_a_map() {
        let value = json!({"b": "2", "a": "1"});
        let map: TextMap = serde_json::from_value(value.clone()).unwrap();
        assert_eq!((map.get("a").unwrap().as_str(), map.get("c")), ("1", None));
        assert!(map.contains_key("b") && !map.is_empty() && TextMap::default().is_empty());
        assert_eq!(json!(map), value);
        assert!(serde_json::from_value::<TextMap>(json!({"a": 1})).is_err());
        let mut copy = map.clone();
        copy.texts_mut().for_each(|text| *text = text.to_uppercase().into());
        assert_eq!((json!(copy), copy == map), (json!({"A": "1", "B": "2"}), false));
    }

    #[test]
    fn a_map_of_texts_is_changed_like_a_tree() {
        let tree = BTreeMap::from(["b", "d", "a"].map(|key| (key.to_owned(), key.to_uppercase())));
        let mut map = TextMap::from(tree.clone());
        assert_eq!(map, tree.into_iter().rev().collect::<TextMap>());
        let inserted = [("c", "C"), ("b", "2"), ("b", "3")].map(|(key, text)| map.insert(key, text));
        assert_eq!(inserted, [None, Some("B".into()), Some("2".into())]);
        assert_eq!((map.remove("a"), map.remove("a")), (Some("A".into()), None));
        assert_eq!(map.keys().collect::<Vec<_>>(), ["b", "c", "d"]);
        assert_eq!(json!(map), json!({"b": "3", "c": "C", "d": "D"}));
        assert_eq!(TextMap::from(BTreeMap::<String, String>::from(&map)), map);
        assert_eq!(TextMap::from_iter([("a", "1"), ("a", "2")]).get("a").unwrap(), "2");
    }
}
