package redact

import "slices"

type trie struct {
	nodes []trieNode
}

type trieNode struct {
	next map[byte]int32
	len  int32 // length of the pattern that ends here; 0 means none
	mark int32
}

func newTrie() trie { return trie{nodes: []trieNode{{}}} }

func (t *trie) insert(p string, mark int32) {
	n := int32(0)
	for i := range len(p) {
		c, ok := t.nodes[n].next[p[i]]
		if !ok {
			c = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{})
			if t.nodes[n].next == nil {
				t.nodes[n].next = make(map[byte]int32, 1)
			}
			t.nodes[n].next[p[i]] = c
		}
		n = c
	}
	if t.nodes[n].len == 0 { // two secrets of one value: the first names it
		t.nodes[n].len, t.nodes[n].mark = int32(len(p)), mark
	}
}

// machine is an Aho-Corasick automaton. Its cost is linear in the text whatever
// the text is, and the depth of its state is exactly what a streaming reader
// has to hold back. Transitions are sparse, because a private key in all its
// forms has some ten thousand states and a dense table would be tens of megabytes.
type machine struct {
	root  [256]int32
	nodes []node
	label []byte  // edges of all nodes: node n has lo..hi
	to    []int32 // target of the edge
}

type node struct {
	fail   int32
	lo, hi int32
	depth  int32
	len    int32 // longest pattern that ends in this state; 0 means none
	mark   int32
}

func (t *trie) compile() *machine {
	m := &machine{nodes: make([]node, len(t.nodes))}
	for i, tn := range t.nodes {
		n := &m.nodes[i]
		n.len, n.mark = tn.len, tn.mark
		n.lo = int32(len(m.label))
		for _, b := range sortedKeys(tn.next) {
			m.label = append(m.label, b)
			m.to = append(m.to, tn.next[b])
		}
		n.hi = int32(len(m.label))
	}
	queue := make([]int32, 0, len(m.nodes))
	for b, c := range t.nodes[0].next {
		m.root[b] = c
		m.nodes[c].depth = 1
		queue = append(queue, c)
	}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for e := m.nodes[p].lo; e < m.nodes[p].hi; e++ {
			c := &m.nodes[m.to[e]]
			c.depth = m.nodes[p].depth + 1
			c.fail = m.step(m.nodes[p].fail, m.label[e])
			if f := m.nodes[c.fail]; c.len == 0 {
				c.len, c.mark = f.len, f.mark
			}
			queue = append(queue, m.to[e])
		}
	}
	return m
}

func sortedKeys(next map[byte]int32) []byte {
	keys := make([]byte, 0, len(next))
	for b := range next {
		keys = append(keys, b)
	}
	slices.Sort(keys)
	return keys
}

func (m *machine) step(s int32, b byte) int32 {
	for s != 0 {
		n := &m.nodes[s]
		for e := n.lo; e < n.hi; e++ {
			if m.label[e] == b {
				return m.to[e]
			}
		}
		s = n.fail
	}
	return m.root[b]
}
