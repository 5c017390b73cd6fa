package belay

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
)

var (
	executionPattern = regexp.MustCompile(`^namespaces/[^/]+/executions/[^/]+$`)
	approvalPattern  = regexp.MustCompile(`^namespaces/[^/]+/approvals/[^/]+$`)
	digitsPattern    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// executionName returns the name of an execution from its id or its name.
func executionName(execution, namespace string) (string, error) {
	return fullName(execution, executionPattern, "namespaces/"+namespace+"/executions/", "execution")
}

// approvalName returns the name of an approval from its id or its name.
func approvalName(approval, namespace string) (string, error) {
	return fullName(approval, approvalPattern, "namespaces/"+namespace+"/approvals/", "approval")
}

func fullName(text string, pattern *regexp.Regexp, prefix, field string) (string, error) {
	if pattern.MatchString(text) {
		return text, nil
	}
	if text == "" || strings.Contains(text, "/") {
		return "", usage(field, "`%s` is %q: give an id, or a name such as `%sID`.", field, text, prefix)
	}
	return prefix + text, nil
}

// stepName returns the name of a step from its id or its name.
func stepName(execution, step string) (string, error) {
	prefix := execution + "/steps/"
	if strings.HasPrefix(step, prefix) {
		return step, nil
	}
	if step == "" || strings.Contains(step, "/") {
		return "", usage("step", "`step` is %q: give the id of a step of %s.", step, execution)
	}
	return prefix + step, nil
}

// blobName returns the name of a blob from its digest, its digits, or its name.
func blobName(execution, digest string) (string, error) {
	digits := lastPart(digest)
	digits = digits[strings.LastIndexByte(digits, ':')+1:]
	if !digitsPattern.MatchString(digits) {
		return "", usage("blob", "`blob` is %q: give the digest of a belay.Blob.", digest)
	}
	return execution + "/blobs/" + digits, nil
}

// namespaceOf returns the namespace of an execution by its name, or else that of the client, as namespaces/*.
func namespaceOf(execution, namespace string) string {
	if execution != "" {
		namespace = strings.Split(execution, "/")[1]
	}
	return "namespaces/" + namespace
}

// requestID returns the key that was given, or one that no other request has.
func requestID(key *string) *string {
	if key != nil {
		return key
	}
	var random [16]byte
	// It never fails: the program ends where the system has no randomness.
	_, _ = rand.Read(random[:])
	made := hex.EncodeToString(random[:])
	return &made
}
