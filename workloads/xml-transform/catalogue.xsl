<?xml version="1.0" encoding="UTF-8"?>
<!--
  Turns the shared MIME database into one HTML catalogue: an overview per family of types, the
  tree of types and subtypes, the file name patterns, the translations of each type's name, and
  an index of the words in the English names. It says in a line whether the catalogue is complete.

  It asks of an allocator what a document server asks: a large tree built once, then node sets,
  result fragments and strings built and dropped without end (keys, grouping, sets, multi-level
  sorts, recursion). Every step is linear in the number of types: the time does not hide in a
  quadratic search.
-->
<xsl:stylesheet version="1.0"
    xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
    xmlns:m="http://www.freedesktop.org/standards/shared-mime-info"
    xmlns:exsl="http://exslt.org/common"
    xmlns:set="http://exslt.org/sets"
    exclude-result-prefixes="m exsl set">

  <xsl:output method="html" encoding="UTF-8" indent="yes"/>

  <xsl:key name="type" match="m:mime-type" use="@type"/>
  <xsl:key name="family" match="m:mime-type" use="substring-before(@type, '/')"/>
  <xsl:key name="subtypes" match="m:mime-type" use="m:sub-class-of/@type"/>
  <xsl:key name="pattern" match="m:glob" use="@pattern"/>
  <xsl:key name="word" match="word" use="@text"/>

  <xsl:variable name="types" select="/m:mime-info/m:mime-type"/>
  <!-- The first type of each family stands for its family. -->
  <xsl:variable name="heads" select="$types[generate-id() =
      generate-id(key('family', substring-before(@type, '/'))[1])]"/>
  <xsl:variable name="upper" select="'ABCDEFGHIJKLMNOPQRSTUVWXYZ'"/>
  <xsl:variable name="lower" select="'abcdefghijklmnopqrstuvwxyz'"/>
  <!-- What separates words in a name, besides the space. -->
  <xsl:variable name="separators" select="'/-()+.,&quot;'"/>
  <xsl:variable name="spaces" select="'        '"/>

  <xsl:template match="/">
    <html>
      <head><title>Catalogue of media types</title></head>
      <body>
        <xsl:call-template name="families"/>
        <xsl:call-template name="hierarchy"/>
        <xsl:call-template name="extensions"/>
        <xsl:call-template name="translations"/>
        <xsl:call-template name="word-index"/>
      </body>
    </html>
  </xsl:template>

  <!-- ~~~~ Families: grouped by key, each sorted by name ~~~~ -->

  <xsl:template name="families">
    <h1>Families</h1>
    <xsl:for-each select="$heads">
      <xsl:sort select="count(key('family', substring-before(@type, '/')))" data-type="number"
          order="descending"/>
      <xsl:sort select="@type"/>
      <xsl:variable name="members" select="key('family', substring-before(@type, '/'))"/>
      <h2><xsl:value-of select="substring-before(@type, '/')"/></h2>
      <p><xsl:value-of select="count($members)"/> types,
        <xsl:value-of select="count($members/m:glob)"/> patterns,
        <xsl:value-of select="count($members//m:match)"/> magic rules</p>
      <dl>
        <xsl:for-each select="$members">
          <xsl:sort select="translate(m:comment[not(@xml:lang)], $upper, $lower)"/>
          <xsl:sort select="@type"/>
          <xsl:apply-templates select="." mode="entry"/>
        </xsl:for-each>
      </dl>
    </xsl:for-each>
    <xsl:variable name="listed">
      <xsl:for-each select="$heads">
        <n><xsl:value-of select="count(key('family', substring-before(@type, '/')))"/></n>
      </xsl:for-each>
    </xsl:variable>
    <!-- Grouping lost nothing and doubled nothing: the output says so, and the workload checks it. -->
    <p class="check"><xsl:value-of select="concat('catalogue complete: ',
        sum(exsl:node-set($listed)/n) = count($types), ', ', count($types), ' types')"/></p>
  </xsl:template>

  <xsl:template match="m:mime-type" mode="entry">
    <dt><xsl:value-of select="m:comment[not(@xml:lang)]"/>
      <code><xsl:value-of select="@type"/></code></dt>
    <dd>
      <xsl:value-of select="count(set:distinct(m:comment))"/> different names
      <xsl:for-each select="m:glob">
        <xsl:sort select="@pattern"/>
        <kbd><xsl:value-of select="@pattern"/></kbd>
      </xsl:for-each>
      <xsl:for-each select="m:comment[@xml:lang]">
        <xsl:sort select="string-length(.)" data-type="number" order="descending"/>
        <xsl:sort select="@xml:lang"/>
        <xsl:if test="position() &lt;= 3">
          <span lang="{@xml:lang}"><xsl:value-of select="."/></span>
        </xsl:if>
      </xsl:for-each>
      <xsl:apply-templates select="m:magic/m:match" mode="rule"/>
    </dd>
  </xsl:template>

  <!-- A magic rule with its nested rules, written as one expression. -->
  <xsl:template match="m:match" mode="rule">
    <xsl:value-of select="concat(@type, '@', @offset, '=')"/>
    <xsl:value-of select="translate(@value, '\', '/')"/>
    <xsl:if test="m:match">
      <xsl:text> and (</xsl:text>
      <xsl:for-each select="m:match">
        <xsl:if test="position() &gt; 1"> or </xsl:if>
        <xsl:apply-templates select="." mode="rule"/>
      </xsl:for-each>
      <xsl:text>)</xsl:text>
    </xsl:if>
  </xsl:template>

  <!-- ~~~~ The tree of types and their subtypes: recursion by key ~~~~ -->

  <xsl:template name="hierarchy">
    <h1>Hierarchy</h1>
    <ul>
      <xsl:for-each select="$types[key('subtypes', string(@type)) and not(key('type', m:sub-class-of/@type))]">
        <xsl:sort select="@type"/>
        <xsl:apply-templates select="." mode="tree"/>
      </xsl:for-each>
    </ul>
  </xsl:template>

  <xsl:template match="m:mime-type" mode="tree">
    <!-- Every chain of parents ends, but a type may name two parents: the depth is a safe stop. -->
    <xsl:param name="depth" select="1"/>
    <xsl:param name="path" select="''"/>
    <xsl:variable name="here" select="concat($path, ' / ', @type)"/>
    <xsl:variable name="below" select="key('subtypes', string(@type))"/>
    <li title="{$here}">
      <xsl:value-of select="concat($depth, ' ', @type, ' ')"/>
      <xsl:value-of select="normalize-space(m:comment[not(@xml:lang)])"/>
      <xsl:if test="$below and $depth &lt; 9">
        <ul>
          <xsl:apply-templates select="$below" mode="tree">
            <xsl:sort select="count(key('subtypes', string(@type)))" data-type="number" order="descending"/>
            <xsl:sort select="@type"/>
            <xsl:with-param name="depth" select="$depth + 1"/>
            <xsl:with-param name="path" select="$here"/>
          </xsl:apply-templates>
        </ul>
      </xsl:if>
    </li>
  </xsl:template>

  <!-- ~~~~ File name patterns, and which types claim them ~~~~ -->

  <xsl:template name="extensions">
    <h1>Patterns</h1>
    <table>
      <xsl:for-each select="$types/m:glob[generate-id() = generate-id(key('pattern', string(@pattern))[1])]">
        <xsl:sort select="translate(@pattern, $upper, $lower)"/>
        <xsl:sort select="@pattern"/>
        <tr>
          <th><xsl:value-of select="@pattern"/></th>
          <td>
            <xsl:for-each select="key('pattern', string(@pattern))">
              <xsl:sort select="@weight" data-type="number" order="descending"/>
              <xsl:sort select="../@type"/>
              <xsl:if test="position() &gt; 1">, </xsl:if>
              <xsl:value-of select="../@type"/>
            </xsl:for-each>
          </td>
        </tr>
      </xsl:for-each>
    </table>
  </xsl:template>

  <!-- ~~~~ Translations: how many names a type has, which it shares, who shares them ~~~~ -->

  <xsl:template name="translations">
    <h1>Translations</h1>
    <xsl:for-each select="$types">
      <xsl:sort select="count(set:distinct(m:comment))" data-type="number" order="descending"/>
      <xsl:sort select="@type"/>
      <xsl:variable name="names" select="set:distinct(m:comment)"/>
      <xsl:variable name="inherited" select="set:distinct(key('type', m:sub-class-of/@type)/m:comment)"/>
      <xsl:variable name="either" select="set:distinct($names | $inherited)"/>
      <h2><xsl:value-of select="@type"/></h2>
      <p><xsl:value-of select="concat(count($names), ' names, ',
          count($names) + count($inherited) - count($either), ' of them shared with a parent')"/></p>
      <xsl:apply-templates select="$names" mode="shared">
        <xsl:sort select="string-length(.)" data-type="number" order="descending"/>
        <xsl:sort select="."/>
      </xsl:apply-templates>
    </xsl:for-each>
  </xsl:template>

  <!-- One name with the languages that use it; only the three longest names of a type are shown. -->
  <xsl:template match="m:comment" mode="shared">
    <xsl:if test="position() &lt;= 3">
      <xsl:variable name="languages">
        <xsl:for-each select="../m:comment[. = current()]">
          <xsl:sort select="@xml:lang"/>
          <xsl:value-of select="concat(@xml:lang, ' ')"/>
        </xsl:for-each>
      </xsl:variable>
      <p><xsl:value-of select="concat(., ': ', normalize-space($languages))"/></p>
    </xsl:if>
  </xsl:template>

  <!-- ~~~~ The words of the names: split into a temporary tree, then grouped, by family ~~~~ -->

  <xsl:template name="word-index">
    <h1>Words</h1>
    <xsl:for-each select="$heads">
      <xsl:sort select="@type"/>
      <xsl:variable name="family" select="substring-before(@type, '/')"/>
      <xsl:variable name="words">
        <xsl:for-each select="key('family', $family)">
          <xsl:call-template name="split">
            <xsl:with-param name="text" select="normalize-space(translate(m:comment[not(@xml:lang)],
                concat($upper, $separators), concat($lower, $spaces)))"/>
            <xsl:with-param name="type" select="@type"/>
          </xsl:call-template>
        </xsl:for-each>
      </xsl:variable>
      <h2><xsl:value-of select="$family"/></h2>
      <dl>
        <xsl:for-each select="set:distinct(exsl:node-set($words)/word/@text)">
          <xsl:sort select="."/>
          <dt><xsl:value-of select="."/></dt>
          <dd>
            <xsl:for-each select="set:distinct(key('word', string(.))/@type)">
              <xsl:sort select="."/>
              <xsl:value-of select="concat(., ' ')"/>
            </xsl:for-each>
          </dd>
        </xsl:for-each>
      </dl>
    </xsl:for-each>
  </xsl:template>

  <xsl:template name="split">
    <xsl:param name="text"/>
    <xsl:param name="type"/>
    <xsl:if test="$text">
      <word text="{substring-before(concat($text, ' '), ' ')}" type="{$type}"/>
      <xsl:call-template name="split">
        <xsl:with-param name="text" select="substring-after($text, ' ')"/>
        <xsl:with-param name="type" select="$type"/>
      </xsl:call-template>
    </xsl:if>
  </xsl:template>

</xsl:stylesheet>
