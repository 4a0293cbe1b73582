// Package rangediff compares the commits of a branch before and after a rebase: which are the same, which changed and
// why, which are gone. It reads objects only, in a repository of ours; no work tree, configuration or word of whoever moved
// the commits counts. Why a commit is not the same is found out by moving it once more, without a work tree.
package rangediff
